"""Blobs in an S3-compatible bucket, with requests signed by AWS Signature Version 4.

It uses four requests, addressed by path, signed with the hash of the payload, and retried. Tenants and references are
outside its scope. It never creates buckets or lists objects.
"""

import asyncio
import hashlib
import hmac
import random
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from io import BytesIO
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
from msgspec import Struct
from yarl import URL

from accord.storage.address import Location, NoOptions
from accord.storage.blobs.blob_store import RANGE, BlobsKind
from accord.storage.store import StoreRefused, StoreUnavailable


class AwsCredentials(Struct, frozen=True, kw_only=True):
    """AWS access keys. Temporary keys come with a session token."""

    access_key: str
    secret_key: str
    session_token: str | None = None


class UnsignedRequest(Struct, frozen=True, kw_only=True):
    """A request to sign.

    `path` is percent-encoded as sent. `headers` have lower-case names and include `host`.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    payload_hash: str


def signed_headers(request: UnsignedRequest, credentials: AwsCredentials, region: str, at: datetime) -> dict[str, str]:
    """Return the request's headers with its signature headers; `at` is the time in UTC."""
    stamp = f"{at:%Y%m%dT%H%M%SZ}"
    headers = {**request.headers, "x-amz-content-sha256": request.payload_hash, "x-amz-date": stamp}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = sorted(headers)
    listed = ";".join(names)
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    canonical = f"{request.method}\n{request.path}\n\n{lines}\n{listed}\n{request.payload_hash}"
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret_key}".encode()
    for step in scope.split("/"):
        key = _hmac(key, step)
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={listed}, "
        f"Signature={_hmac(key, text).hex()}"
    )
    return headers


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


ATTEMPTS = 4
PAUSE_SECONDS = 0.2
"""Pause before the second attempt. It doubles with each further attempt, with jitter so that nodes spread out."""

TIMEOUT = aiohttp.ClientTimeout(total=120, sock_connect=5, sock_read=30)
"""Timeout of one attempt: enough for a large part over a slow line, but not for a silent connection."""

EMPTY_HASH = hashlib.sha256(b"").hexdigest()

BUCKET_ADDRESS_FORM = "`s3://bucket/prefix?endpoint=http://host:port&region=name`"

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_CODE = re.compile(rb"<Code>(?P<code>\w+)</Code>")


class S3Response(NamedTuple):
    """A response of the server."""

    status: int
    body: bytes

    @property
    def code(self) -> str:
        """S3's error code, or an empty string."""
        found = _CODE.search(self.body)
        return found["code"].decode() if found else ""


class S3Backend:
    """Stores objects below a prefix of a bucket."""

    def __init__(
        self,
        *,
        endpoint: str,
        bucket: str,
        region: str,
        credentials: AwsCredentials,
        prefix: str = "",
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """Use a bucket. Nothing is sent before the first blob."""
        self._endpoint = endpoint.rstrip("/")
        self._folder = "/".join(part for part in (bucket, prefix.strip("/")) if part)
        self._region = region
        self._credentials = credentials
        self._pause_seconds = pause_seconds
        self._session: aiohttp.ClientSession | None = None

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write an object, unless it exists."""
        if (await self._send("HEAD", name)).status != 200:
            self._expect(await self._send("PUT", name, data, hash), 200, 201, 204)

    async def read(self, name: str) -> bytes | None:
        """Return the content of an object, or None."""
        answer = await self._send("GET", name)
        if answer.status == 404 and answer.code == "NoSuchKey":
            return None
        self._expect(answer, 200)
        return answer.body

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the content of an object in ranges. A failed range is retried."""
        at = 0
        while True:
            answer = await self._send("GET", name, range_from=at)
            if answer.status == 416 or (answer.status == 404 and answer.code == "NoSuchKey"):
                return
            self._expect(answer, 200, 206)
            if answer.body:
                yield answer.body
            if answer.status == 200 or len(answer.body) < RANGE:
                return
            at += len(answer.body)

    async def remove(self, name: str) -> None:
        """Remove an object."""
        answer = await self._send("DELETE", name)
        if answer.code != "NoSuchKey":
            self._expect(answer, 200, 204)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send(
        self, method: str, name: str, data: bytes = b"", hash: str = EMPTY_HASH, range_from: int | None = None
    ) -> S3Response:
        """Send a request. Connection errors, 5xx and 429 are retried."""
        url = URL(f"{self._endpoint}/{quote(f'{self._folder}/{name}')}", encoded=True)
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(self._pause_seconds * 2 ** (attempt - 1) * random.uniform(0.5, 1))
            try:
                answer = await self._attempt(method, url, data, hash, range_from)
            except (aiohttp.ClientError, OSError) as error:
                reason = str(error) or type(error).__name__
                continue
            if answer.status < 500 and answer.status != 429:
                return answer
            reason = f"it answers {answer.status} {answer.code}".rstrip()
        raise StoreUnavailable(f"S3 at {self._endpoint}: {reason}")

    async def _attempt(self, method: str, url: URL, data: bytes, hash: str, range_from: int | None) -> S3Response:
        # Signed for each attempt: a signature is valid for 15 minutes.
        unsigned = UnsignedRequest(
            method=method, path=url.raw_path, headers={"host": url.host_port_subcomponent or ""}, payload_hash=hash
        )
        headers = signed_headers(unsigned, self._credentials, self._region, datetime.now(UTC))
        headers["accept-encoding"] = "identity"  # not signed: proxies change it
        if range_from is not None:
            headers["range"] = f"bytes={range_from}-{range_from + RANGE - 1}"
        body = BytesIO(data) if method == "PUT" else None  # a stream, so that megabytes do not block the loop
        async with self._connected().request(
            method, url, headers=headers, data=body, allow_redirects=False
        ) as response:
            return S3Response(response.status, await response.read())

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:  # a session needs the running loop
            self._session = aiohttp.ClientSession(timeout=TIMEOUT, auto_decompress=False)
        return self._session

    def _expect(self, answer: S3Response, *statuses: int) -> None:
        if answer.status not in statuses:
            said = f"{answer.status} {answer.code}".rstrip()
            raise StoreUnavailable(f"S3 at {self._endpoint} refuses {self._folder}: {said}")


class S3Options(NoOptions, frozen=True, kw_only=True):
    """Options of a bucket's address. The default endpoint is Amazon's."""

    endpoint: str | None = None
    region: str = ""


def _open_bucket(where: Location) -> S3Backend:
    options: S3Options = where.options
    env = where.env
    region = options.region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = options.endpoint if options.endpoint is not None else f"https://s3.{region}.amazonaws.com"
    if not _BUCKET.fullmatch(where.host) or not _is_endpoint(endpoint):
        raise StoreRefused(
            f"The address of a bucket cannot be understood; write {BUCKET_ADDRESS_FORM}"
        )  # the address may contain a secret
    missing = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not env.get(name)]
    if missing:
        raise StoreRefused(f"Large parts in S3 need {' and '.join(missing)} in the environment")
    credentials = AwsCredentials(
        access_key=env["AWS_ACCESS_KEY_ID"],
        secret_key=env["AWS_SECRET_ACCESS_KEY"],
        session_token=env.get("AWS_SESSION_TOKEN") or None,
    )
    prefix = where.path.strip("/")
    return S3Backend(endpoint=endpoint, bucket=where.host, region=region, credentials=credentials, prefix=prefix)


def _is_endpoint(url: str) -> bool:
    parts = urlsplit(url)
    plain = not parts.query and not parts.fragment and "@" not in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


KIND = BlobsKind(open=_open_bucket, options=S3Options)
