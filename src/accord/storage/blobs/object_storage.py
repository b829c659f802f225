"""Blobs in object storage: Amazon S3 and compatible servers, Google Cloud Storage, Azure. Needs the extra `s3`.

Credentials come from the environment, under the names of each vendor's own tools. Nothing is sent before the first
blob.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from accord.retries import RetryPolicy
from accord.storage.address import Location, NoOptions
from accord.storage.blobs.blob_store import RANGE, BlobStoreType
from accord.storage.store import StoreRefused, StoreUnavailable

try:
    import obstore
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import AzureStore, GCSStore, S3Store
except ImportError as error:
    raise ImportError("Blobs in object storage need obstore: pip install 'accord[s3]'") from error

MAX_ATTEMPTS = 4
RETRIES = RetryPolicy(first_seconds=0.2, max_seconds=5.0, attempts=MAX_ATTEMPTS)
"""Attempts of a request after a connection error, 5xx or 429."""

TIMEOUT, CONNECT_TIMEOUT = timedelta(seconds=120), timedelta(seconds=5)
"""Timeouts of one attempt: enough for a large part over a slow line."""

BUCKET_ADDRESS_FORM = "`s3://bucket/prefix?endpoint=http://host:port&region=name`"

_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_CODE = re.compile(r"<Code>(?P<code>\w+)</Code>")


class ObjectStorageBackend:
    """Stores objects below a prefix of a bucket."""

    def __init__(self, store: Any, name: str) -> None:
        """Use a store of obstore. `name` is its address in errors."""
        self._store = store
        self._name = name

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write an object, unless it exists."""
        with self._translated():
            try:
                await obstore.head_async(self._store, name)
            except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):  # the next answer has the reason
                await obstore.put_async(self._store, name, data, use_multipart=False)

    async def read(self, name: str) -> bytes | None:
        """Return the content of an object, or None."""
        with self._translated():
            try:
                response = await obstore.get_async(self._store, name)
            except FileNotFoundError as error:
                _refuse_missing_bucket(error)
                return None
            return bytes(await response.bytes_async())

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the content of an object in pieces, or nothing if it is missing."""
        with self._translated():
            try:
                response = await obstore.get_async(self._store, name)
            except FileNotFoundError as error:
                _refuse_missing_bucket(error)
                return
            async for piece in response.stream(min_chunk_size=RANGE):
                yield bytes(piece)

    async def remove(self, name: str) -> None:
        """Remove an object."""
        with self._translated():
            try:
                await obstore.delete_async(self._store, name)
            except FileNotFoundError as error:
                _refuse_missing_bucket(error)

    async def close(self) -> None:
        """Do nothing: connections are closed with the last reference."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise StoreUnavailable(f"Object storage at {self._name}: {_reason(error)}") from error


def _refuse_missing_bucket(error: FileNotFoundError) -> None:
    """Raise the error of a missing bucket. A missing object has the same status."""
    code = _code(error)
    if code not in ("", "NoSuchKey", "BlobNotFound"):
        raise error


def _code(error: Exception) -> str:
    """Return the error code in a server's answer, or an empty string."""
    match = _CODE.search(str(error))
    return match["code"] if match else ""


def _reason(error: Exception) -> str:
    """Return the first sentence of an error, which has the status, and the server's code. The rest may be long."""
    sentence = str(error).partition("<")[0].partition("\n")[0].strip().rstrip(":")
    return f"{sentence} {_code(error)}".rstrip()


class BucketOptions(NoOptions, frozen=True, kw_only=True):
    """Options of a bucket's address. The default endpoint is the vendor's."""

    endpoint: str | None = None


class S3Options(BucketOptions, frozen=True, kw_only=True):
    """Options of an S3 bucket's address."""

    region: str = ""


class AzureOptions(BucketOptions, frozen=True, kw_only=True):
    """Options of an Azure container's address."""

    account: str = ""


def _open_s3(where: Location) -> ObjectStorageBackend:
    env, options = where.env, where.options
    region = options.region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = f"https://s3.{region}.amazonaws.com" if options.endpoint is None else options.endpoint
    _check(where, endpoint, BUCKET_ADDRESS_FORM, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    config = {
        "endpoint": endpoint.rstrip("/"),
        "region": region,
        "access_key_id": env["AWS_ACCESS_KEY_ID"],
        "secret_access_key": env["AWS_SECRET_ACCESS_KEY"],
        "virtual_hosted_style_request": False,
        "disable_bulk_delete": True,  # compatible servers may lack it
    }
    if token := env.get("AWS_SESSION_TOKEN"):
        config["session_token"] = token
    return _opened(S3Store, where, endpoint, config)


def _open_google(where: Location) -> ObjectStorageBackend:
    endpoint = where.options.endpoint
    _check(where, endpoint, "`gs://bucket/prefix`", "GOOGLE_APPLICATION_CREDENTIALS")
    config = {"application_credentials": where.env["GOOGLE_APPLICATION_CREDENTIALS"]}
    if endpoint is not None:
        config["base_url"] = endpoint.rstrip("/")
    return _opened(GCSStore, where, endpoint, config)


def _open_azure(where: Location) -> ObjectStorageBackend:
    options: AzureOptions = where.options
    _check(where, options.endpoint, "`az://container/prefix?account=name`", "AZURE_STORAGE_ACCOUNT_KEY")
    config = {
        "account_name": options.account or where.env.get("AZURE_STORAGE_ACCOUNT_NAME", ""),
        "account_key": where.env["AZURE_STORAGE_ACCOUNT_KEY"],
    }
    if options.endpoint is not None:
        config["endpoint"] = options.endpoint
    return _opened(AzureStore, where, options.endpoint, config)


def _opened(kind: Any, where: Location, endpoint: str | None, config: Mapping[str, Any]) -> ObjectStorageBackend:
    """Return a backend with the time limits and retries that all vendors share."""
    backoff = {
        "init_backoff": timedelta(seconds=RETRIES.first_seconds),
        "max_backoff": timedelta(seconds=RETRIES.max_seconds),
        "base": RETRIES.factor,
    }
    is_http = (endpoint or "").startswith("http:")
    store = kind(
        where.host,
        prefix=where.path.strip("/") or None,
        client_options={"allow_http": is_http, "timeout": TIMEOUT, "connect_timeout": CONNECT_TIMEOUT},
        retry_config={"max_retries": MAX_ATTEMPTS - 1, "retry_timeout": TIMEOUT, "backoff": backoff},
        **config,
    )
    place = where.host if endpoint is None else f"{endpoint.rstrip('/')}/{where.host}"
    return ObjectStorageBackend(store, f"{where.scheme}://{place}" if endpoint is None else place)


def _check(where: Location, endpoint: str | None, form: str, *names: str) -> None:
    """Refuse an invalid address, and missing variables of the environment."""
    if not _BUCKET.fullmatch(where.host) or not (endpoint is None or _is_endpoint(endpoint)):
        # The address may contain a secret.
        raise StoreRefused(f"The address of a bucket cannot be understood; write {form}")
    missing = [name for name in names if not where.env.get(name)]
    if missing:
        raise StoreRefused(f"Large parts in object storage need {' and '.join(missing)} in the environment")


def _is_endpoint(url: str) -> bool:
    parts = urlsplit(url)
    plain = not parts.query and not parts.fragment and "@" not in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


S3 = BlobStoreType(open=_open_s3, options=S3Options)
GOOGLE = BlobStoreType(open=_open_google, options=BucketOptions)
AZURE = BlobStoreType(open=_open_azure, options=AzureOptions)
