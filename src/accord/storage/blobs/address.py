"""Where large parts are kept, from one line of configuration.

`table:` is the store's own table, a plain path is a directory, and anything else is an address whose scheme is one of
`kinds`, such as `dir:///path` and `s3://bucket/prefix?endpoint=http://host:port&region=name`.
"""

import re
from collections.abc import Mapping

from accord.entries import Unusable
from accord.storage.blobs.base import Blobs
from accord.storage.blobs.kinds import BLOBS
from accord.storage.blobs.outside import OutsideBlobs, Shelf
from accord.storage.blobs.table import TableBlobs
from accord.storage.commands.blobs import GRACE_MS
from accord.storage.located import Location, located
from accord.storage.store import Store, StoreRefused

TABLE = "table:"
FORMS = "`table:`, `dir:///path`, a path, and `s3://bucket/prefix?endpoint=http://host:port&region=name`"
WHAT = "large parts"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):.*", re.DOTALL)


def open_blobs(url: str, store: Store, env: Mapping[str, str], grace_ms: int = GRACE_MS) -> Blobs:
    """Open the place for large parts.

    `env` has the credentials of S3 under the names that AWS's own tools use. Bytes that were put within `grace_ms` are
    not removed, because the reference to them may be on its way.
    """
    return TableBlobs(store, grace_ms) if url == TABLE else OutsideBlobs(store, open_shelf(url, env), grace_ms)


def open_shelf(url: str, env: Mapping[str, str]) -> Shelf:
    """Open a place outside of the store."""
    match = _SCHEME.fullmatch(url)
    scheme = match["scheme"] if match else "dir"
    if not url or scheme not in BLOBS:
        raise StoreRefused(f"The address of large parts cannot be understood; known are {FORMS}")
    try:
        kind = BLOBS.load(scheme)
    except Unusable as error:
        raise StoreRefused(f"Large parts cannot be kept at {scheme}://: {error}") from error
    where = located(url, kind.options, env, WHAT) if match else Location(scheme=scheme, path=url, env=env)
    return kind.open(where)
