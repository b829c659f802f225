"""Other implementations as judges: each lives in an environment of its own, and answers over its standard input.

`make peers` builds the environments; asking a judge that is not there builds it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD_SECONDS = 600


def interpreter(name: str) -> Path:
    """Return the Python of a peer's environment."""
    if not (ROOT / ".peers" / name / ".installed").exists():
        subprocess.run(["make", f".peers/{name}/.installed"], cwd=ROOT, check=True, timeout=BUILD_SECONDS)
    return ROOT / ".peers" / name / "bin" / "python"


def judge(name: str, script: str, cases: list[dict[str, Any]]) -> list[str | None]:
    """Ask a peer about many documents at once; an accepted one has no complaint."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(
        [interpreter(name), ROOT / "tests" / "judges" / script],
        input=lines,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return [None if answer["ok"] else answer["error"] for answer in answers]
