"""Blobs: the bytes of large file parts, stored once under their hash.

`LargeParts` moves them out of messages and artifacts and back. `open_blobs` opens the configured blob store. The
references from tasks to blobs are in `storage.commands.blobs`.
"""

from accord.storage.blobs.blob_store import BlobCorrupt, BlobMissing, Blobs, open_blobs, sweep
from accord.storage.blobs.large_parts import THRESHOLD, LargeParts

__all__ = ["THRESHOLD", "BlobCorrupt", "BlobMissing", "Blobs", "LargeParts", "open_blobs", "sweep"]
