"""Which places outside of the store large parts can be kept in, by the scheme of their address.

A kind opens a shelf; noting what is on it, and finding it again after a crash, is done for all of them by `outside`.
`table:` is none of them: it is the store itself.
"""

from collections.abc import Callable

from msgspec import Struct

from accord.entries import Group
from accord.storage.blobs.outside import Shelf
from accord.storage.located import Location, NoOptions


class BlobsKind(Struct, frozen=True, kw_only=True):
    """A place for large parts: `open` gives its shelf, or raises StoreRefused; `options` are those of its address.

    It is called on no loop that runs, so what belongs to one is made with the first request.
    """

    open: Callable[[Location], Shelf]
    options: type[Struct] = NoOptions


BLOBS = Group(
    "accord.blobs",
    "place for large parts",
    BlobsKind,
    {"dir": "accord.storage.blobs.directory:DIRECTORY", "s3": "accord.storage.blobs.s3:KIND"},
    taken=("table",),
)
"""All of them, by the scheme of their address."""
