"""Variables of the server that nothing gets which is started for a caller.

What else a command gets is decided by its kind; this is below all of them.
"""

import re
from collections.abc import Mapping

OURS = re.compile(r"ACCORD_.*|PGPASSWORD|PGPASSFILE")
"""Names of variables by which the server reaches its store and lets its own callers in."""


def without_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the server's own variables."""
    return {name: value for name, value in env.items() if not OURS.fullmatch(name)}
