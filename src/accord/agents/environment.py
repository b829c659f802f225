"""What commands find around them: variables of the server that they never get, and the commands themselves.

What else a command gets is decided by its kind; this is below all of them, and starts nothing.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

OURS = re.compile(r"ACCORD_.*|PGPASSWORD|PGPASSFILE")
"""Names of variables by which the server reaches its store and lets its own callers in."""


def without_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the server's own variables."""
    return {name: value for name, value in env.items() if not OURS.fullmatch(name)}


def is_there(command: str, env: Mapping[str, str], directory: str | Path | None) -> bool:
    """Whether a command can be started from a directory; where that is decided later, one beside it may be there."""
    place = os.path.expanduser(directory) if directory is not None else None
    if os.sep in command and not os.path.isabs(command):
        if place is None:
            return True
        command = os.path.join(place, command)
    return shutil.which(command, path=env.get("PATH", os.defpath)) is not None
