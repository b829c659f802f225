"""Command line agents that only play their parts: scripts in a folder that comes first in PATH."""

import sys
from pathlib import Path

from tests.workflows.scenes import environment

CLAUDE = """\
import os, sys, time
assert os.isatty(0), "claude is started for people unless it is told otherwise"
open(os.environ["HOME"] + "/claude.args", "a").write(repr(sys.argv[1:]) + "\\n")
print("1. do it", flush=True)
print(os.environ.get("CLAUDE_SAYS", "PLAN_COMPLETE"), flush=True)
print("STEP_" + "COMPLETE:plan", flush=True)
time.sleep(600)
"""
"""In a terminal: says its plan, and stays."""

CODEX = """\
import json, os, sys
prompt = sys.stdin.read()
open(os.environ["HOME"] + "/codex.prompt", "a").write(prompt)
print(json.dumps({"type": "thread.started", "thread_id": "t-1"}))
print(json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "implemented"}}), flush=True)
print(json.dumps({"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}}), flush=True)
"""
"""Without a terminal: writes down what it is told."""

NPM = """\
import os, sys
open(os.environ["HOME"] + "/npm.args", "a").write(" ".join(sys.argv[1:]) + "\\n")
print("5 passing")
"""


def stood_in(folder: Path, **scripts: str) -> dict[str, str]:
    """Return an environment in which commands are these scripts."""
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (bin_ / name).write_text(f"#!{sys.executable} -I\n{script}")
        (bin_ / name).chmod(0o755)
    found = environment(folder)
    return {**found, "PATH": f"{bin_}:{found['PATH']}"}
