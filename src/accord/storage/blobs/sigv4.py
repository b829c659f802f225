"""AWS Signature Version 4 for S3 requests in the `Authorization` header, with the hash of the payload signed.

It does no I/O and has no clock; requests with a query are not covered, because none is made.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct


class Credentials(Struct, frozen=True, kw_only=True):
    """Who signs; a session token goes with temporary keys."""

    access_key: str
    secret_key: str
    session_token: str | None = None


class Unsigned(Struct, frozen=True, kw_only=True):
    """A request to sign: `path` as it is sent, percent-encoded; `headers` with lower-case names, `host` among them."""

    method: str
    path: str
    headers: Mapping[str, str]
    payload_hash: str


def signed_headers(request: Unsigned, credentials: Credentials, region: str, at: datetime) -> dict[str, str]:
    """Return the request's headers and those that sign it; `at` is the time in UTC."""
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
