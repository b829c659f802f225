"""Where large parts are kept, from one line of configuration.

`table:` is the store's own table, `dir:///path` or a plain path is a directory, and
`s3://bucket/prefix?endpoint=http://host:port&region=name` is S3-compatible storage, Amazon's without an endpoint.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from accord.storage.blobs.base import Blobs
from accord.storage.blobs.directory import Directory
from accord.storage.blobs.outside import OutsideBlobs, Shelf
from accord.storage.blobs.table import TableBlobs
from accord.storage.commands.blobs import GRACE_MS
from accord.storage.store import Store, StoreRefused

FORMS = "`table:`, `dir:///path`, a path, and `s3://bucket/prefix?endpoint=http://host:port&region=name`"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):.*", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")


def open_blobs(url: str, store: Store, env: Mapping[str, str], grace_ms: int = GRACE_MS) -> Blobs:
    """Open the place for large parts.

    `env` has the credentials of S3 under the names that AWS's own tools use. Bytes that were put within `grace_ms` are
    not removed, because the reference to them may be on its way.
    """
    match = _SCHEME.fullmatch(url)
    scheme = match["scheme"] if match else ""
    if url == "table:":
        return TableBlobs(store, grace_ms)
    if scheme in ("", "dir") and url:
        return OutsideBlobs(store, Directory(_path(url) if scheme else Path(url)), grace_ms)
    if scheme == "s3":
        return OutsideBlobs(store, _s3(url, env), grace_ms)
    raise StoreRefused(f"The address of large parts cannot be understood; known are {FORMS}")


def _path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc or not parts.path:
        raise StoreRefused("The address of a directory has three slashes before an absolute path: dir:///var/blobs")
    return Path(unquote(parts.path))


def _s3(url: str, env: Mapping[str, str]) -> Shelf:
    from accord.storage.blobs.s3 import S3
    from accord.storage.blobs.sigv4 import Credentials

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    region = options.pop("region", "") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = options.pop("endpoint", f"https://s3.{region}.amazonaws.com")
    if not _BUCKET.fullmatch(parts.netloc) or options or not _is_endpoint(endpoint):
        raise StoreRefused(f"The address of a bucket cannot be understood; known are {FORMS}")  # it may hold a secret
    missing = [name for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not env.get(name)]
    if missing:
        raise StoreRefused(f"Large parts in S3 need {' and '.join(missing)} in the environment")
    credentials = Credentials(
        access_key=env["AWS_ACCESS_KEY_ID"],
        secret_key=env["AWS_SECRET_ACCESS_KEY"],
        session_token=env.get("AWS_SESSION_TOKEN") or None,
    )
    prefix = unquote(parts.path).strip("/")
    return S3(endpoint=endpoint, bucket=parts.netloc, region=region, credentials=credentials, prefix=prefix)


def _is_endpoint(url: str) -> bool:
    parts = urlsplit(url)
    plain = not parts.query and not parts.fragment and "@" not in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain
