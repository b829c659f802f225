"""Key files: `.env` and `.json`, in the forms that AgentVault reads.

    {"a-service": "its key", "another": {"apiKey": "..", "oauth": {"clientId": "..", "clientSecret": ".."}}}

An entry that is not valid is skipped with a warning. A file that cannot be read is an error. A `${NAME}` in a `.env`
file is not replaced, because a secret may contain one.
"""

import logging
import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from accord.client.credentials import credential
from accord.client.credentials.credential import (
    Credential,
    KeyManagementError,
    VariablePrefixes,
    kinds_of,
    normalize_id,
)

log = logging.getLogger("accord.keys")

_document = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entry = msgspec.json.Decoder(str | Credential)


def parse_dotenv(text: str) -> dict[str, str]:
    """Return the values by name. The last value of a repeated name counts."""
    from dotenv.parser import parse_stream  # imported here: few key files are `.env` files

    values: dict[str, str] = {}
    for binding in parse_stream(StringIO(text.removeprefix("\ufeff"))):
        if binding.error or (binding.key is not None and binding.value is None):
            raise KeyManagementError(f"Line {binding.original.line} is not NAME=value")  # the line may be a secret
        if binding.key is not None:
            values[binding.key] = binding.value or ""
    return values


def read_key_file(path: Path, naming: VariablePrefixes = VariablePrefixes()) -> dict[str, Credential]:  # noqa: B008  # an immutable value
    """Return the credentials of a file by id. A missing file has none, and is logged as a warning."""
    suffix = path.suffix.lower() or path.name.lower()  # the file name may be just `.env`
    if suffix not in (".env", ".json"):
        raise KeyManagementError(f"{path}: a key file ends in .env or .json")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        log.warning("keys.no_file", extra={"file": str(path)})
        return {}
    except OSError as error:
        raise KeyManagementError(f"{path} cannot be read: {error.strerror}") from None
    try:
        if suffix == ".json":
            return _entries(path, data)
        return credential.read_variables(parse_dotenv(data.decode()), naming, others_are_keys=True)
    except (KeyManagementError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise KeyManagementError(f"{path} is not a valid key file: {reason}") from None


def _entries(path: Path, data: bytes) -> dict[str, Credential]:
    credentials = {}
    for id, raw in _document.decode(data).items():
        try:
            entry = _entry.decode(raw)
        except msgspec.ValidationError as error:  # the error names the field without its value
            log.warning("keys.entry_skipped", extra={"file": str(path), "id": id, "reason": str(error)})
            continue
        credential = Credential(api_key=entry) if isinstance(entry, str) else entry
        if kinds_of(credential):
            credentials[normalize_id(id)] = credential
    return credentials


def write_entry(path: Path, id: str, credential: Credential | None) -> None:
    """Write or remove an entry of a `.json` file, without changing its other entries.

    The file is replaced atomically, and only its owner can read it.
    """
    if path.suffix.lower() != ".json":
        raise KeyManagementError(f"{path}: only a .json file can be written")
    try:
        document = _document.decode(path.read_bytes()) if path.exists() else {}
    except (OSError, msgspec.MsgspecError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise KeyManagementError(f"{path} is not a valid key file: {reason}") from None
    entries: dict[str, Any] = {
        name: entry for name, entry in document.items() if normalize_id(name) != normalize_id(id)
    }
    if credential is not None:
        entries[normalize_id(id)] = credential
    _replace(path, entries)


def _replace(path: Path, document: Mapping[str, Any]) -> None:
    import tempfile  # slow to import, and few calls write

    target = path.resolve()  # the target of a symbolic link, not the link
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # its mode is 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise KeyManagementError(f"{path} cannot be written: {error.strerror}") from None
