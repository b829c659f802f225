"""Crews and flows, all served by one process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from tests.agents.contract.talking import Talk
from tests.agents.elsewhere import Served, Talking

HERE = "tests.agents.crewai"

CREWS = ("variables", "two", "typed", "plain", "tooled", "broken", "alone", "reviewed")
WRITERS = ("both", "structured", "named", "shared", "large", "reads")
FLOWS = ("Steps", "Typed", "instance", "Asks", "Reviewed", "Routed", "Crewed", "Broken", "Both")

AGENTS = {
    **{f"crews-{name}": f'target = "{HERE}.crews:{name}"' for name in CREWS},
    "crews-keyed": f'target = "{HERE}.crews:variables"\ninputs_key = "topic"',
    "crews-capped": f'target = "{HERE}.crews:endless"\nmax_tokens = 50',
    "crews-every": f'target = "{HERE}.crews:two"\ntask_artifacts = true',
    "crews-example": 'target = "examples.agents.crewai_agent:crew"',
    **{f"writers-{name}": f'target = "{HERE}.writers:{name}"' for name in WRITERS},
    "writers-small": f'target = "{HERE}.writers:large"\nmax_file_bytes = 1000',
    **{f"flows-{name.lower()}": f'target = "{HERE}.flows:{name}"' for name in FLOWS},
    "flows-keyed": f'target = "{HERE}.flows:Steps"\ninputs_key = "input"',
    "flows-forgets": f'target = "{HERE}.flows:Typed"\nkeep_state = false',
}
"""By their names, which begin with the module that they are in."""


@pytest.fixture(scope="session")
def talking_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Talking]]:
    """A function that gives one for a module, which lets a test talk to what is there; no step was taken before."""
    served = Served(tmp_path_factory.mktemp("crewai"), "crewai", AGENTS)

    def of(module: str) -> Talking:
        def talking(name: str) -> AbstractAsyncContextManager[Talk]:
            (served.folder / "steps").unlink(missing_ok=True)
            return served.talking(f"{module}-{name}")

        return talking

    yield of
    served.stop()
