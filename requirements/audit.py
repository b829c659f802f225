"""`make audit`: asks whether anything that accord needs at run time has a known vulnerability.

A known one fails. A service that cannot be reached, or that knows nothing of these packages, fails nothing: there is a
line that says that nothing was checked, so that work without a network stays possible and nobody takes it for a yes.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PINNED = Path(__file__).parent / "runtime.txt"
PIP_AUDIT = (sys.executable, "-m", "pip_audit")
OPTIONS = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--timeout", "5", "--format", "json")
BOUND_SECONDS = 30.0
"""For all packages together; where the service answers they take a few seconds."""

UNREACHED = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "Timeout", "HTTPError", "ServiceError", "SSLError")
"""What pip-audit's last line has in it when the network was the reason."""


class Finding(NamedTuple):
    """What to say, and whether it is a failure."""

    text: str
    failed: bool = False


def audited(command: Sequence[str], seconds: float = BOUND_SECONDS) -> Finding:
    """Run pip-audit and say what it found."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return _unchecked(f"no answer within {seconds:g} s")
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        if any(name in last for name in UNREACHED):
            return _unchecked(last[:160])
        return Finding(f"pip-audit could not run: {last}", failed=True)
    return _judged(packages)


def _unchecked(reason: str) -> Finding:
    return Finding(f"pip-audit: NOT CHECKED for known vulnerabilities, its service was not reached ({reason})")


def _judged(packages: Sequence[dict[str, Any]]) -> Finding:
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        return _unchecked("it knows none of the packages")
    found = [f"{one['name']} {one['version']}: {_named(flaw)}" for one in known for flaw in one["vulns"]]
    if found:
        return Finding("\n".join(["pip-audit: known vulnerabilities", *found]), failed=True)
    skipped = len(packages) - len(known)
    rest = f", {skipped} unknown to the service" if skipped else ""
    return Finding(f"pip-audit: no known vulnerability in {len(known)} packages{rest}")


def _named(flaw: dict[str, Any]) -> str:
    fixed = ", ".join(flaw.get("fix_versions") or ()) or "no release"
    return f"{flaw['id']}, fixed in {fixed}"


def main(arguments: Sequence[str], seconds: float = BOUND_SECONDS) -> int:
    """Audit; arguments are more options of pip-audit."""
    found = audited([*PIP_AUDIT, "--requirement", str(PINNED), *OPTIONS, *arguments], seconds)
    print(found.text, file=sys.stderr if found.failed else sys.stdout)
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
