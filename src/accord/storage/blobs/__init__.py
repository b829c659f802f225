"""Large parts, kept by the hash of their bytes: in the store's own table, in a directory or in S3-compatible storage.

`LargeParts` takes them out of what is stored and puts them back; `open_blobs` chooses where they are kept. Which task
needs which is `storage.commands.blobs`, in the transaction that stores the task.
"""

from accord.storage.blobs.address import open_blobs
from accord.storage.blobs.base import BlobCorrupt, BlobMissing, Blobs
from accord.storage.blobs.large import THRESHOLD, LargeParts
from accord.storage.blobs.sweep import sweep

__all__ = ["THRESHOLD", "BlobCorrupt", "BlobMissing", "Blobs", "LargeParts", "open_blobs", "sweep"]
