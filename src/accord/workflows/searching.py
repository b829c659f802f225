"""Regular expressions over what agents say: a text can be made so that a search for an innocent pattern never ends.

Python holds everything else up while it searches, so whatever could take long is searched in a process of its own,
which is ended. It knows nothing of steps; `verification` and `values` stand above.
"""

import json
import re
import subprocess
import sys

SECONDS = 5
"""How long a search may take; one that is meant to end takes milliseconds."""

SHORT = 2000
"""Characters that can be searched at once for a pattern with one repetition: at worst, some million steps."""

_REPEATS = re.compile(r"[*+{]")
_SEARCH = (
    "import json, re, resource, sys\n"
    "pattern, text, seconds = json.load(sys.stdin)\n"
    "resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))\n"  # it ends, whatever becomes of us
    "sys.exit(0 if re.search(pattern, text, re.MULTILINE) else 10)\n"
)
_FOUND, _NOT_FOUND = 0, 10


class Endless(ValueError):
    """A search took too long."""


def search(pattern: str, text: str, seconds: int = SECONDS) -> bool:
    """Whether a pattern is found in a text; `^` and `$` are of lines. Raises re.error, and Endless."""
    compiled = re.compile(pattern, re.MULTILINE)
    if len(text) <= SHORT and len(_REPEATS.findall(pattern)) <= 1:
        return compiled.search(text) is not None
    try:
        ran = subprocess.run(
            (sys.executable, "-I", "-S", "-c", _SEARCH),
            input=json.dumps((pattern, text, seconds)).encode(),
            timeout=2 * seconds,
            capture_output=True,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired:
        ran = None
    if ran is None or ran.returncode not in (_FOUND, _NOT_FOUND):
        raise Endless(f"the search for {pattern!r} took longer than {seconds} seconds")
    return ran.returncode == _FOUND
