"""The functions of the contract, for whoever needs them elsewhere: `functions:does.echo` and so on."""

import os
from pathlib import Path
from types import SimpleNamespace

from tests.agents.contract.function import behaviours, make

does = SimpleNamespace(**{name: make(name, Path(os.environ["SCRATCH"])) for name in behaviours(Path())})
