"""The agent of a subject, for a process of its own: `SUBJECT`, `BEHAVIOUR` and `SCRATCH` say which one."""

import os
from pathlib import Path

from tests.agents.contract.subjects import subject

_make = subject(os.environ["SUBJECT"]).make
assert _make is not None
agent = _make(os.environ["BEHAVIOUR"], Path(os.environ["SCRATCH"]))
