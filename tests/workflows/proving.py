"""Documents run for real, in this process: on a store of their own, with everything that their posts said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.model import Event, StatusUpdate, Task
from accord.server.settings import Settings
from accord.server.workflow_runs import run_document
from accord.workflows.channel import METADATA
from accord.workflows.source import read_document
from tests.workflows.scenes import environment


class Ran:
    """A run that has come to its end, or to a question."""

    def __init__(self, task: Task, events: list[Event]) -> None:
        self.task, self.events = task, events

    @property
    def state(self) -> str:
        return self.task.status.state.name

    @property
    def output(self) -> str:
        """What the workflow says in the end."""
        made = [one for one in self.task.artifacts if one.artifact_id == "result"]
        return "".join(part.text or "" for one in made for part in one.parts)

    @property
    def why(self) -> str:
        """What its status says."""
        said = self.task.status.message
        return "" if said is None else "".join(part.text or "" for part in said.parts)

    @property
    def updates(self) -> list[StatusUpdate]:
        return [event.body for event in self.events if isinstance(event.body, StatusUpdate)]

    @property
    def posts(self) -> list[str]:
        """The channel."""
        said = [update.status.message for update in self.updates if (update.metadata or {}).get(METADATA)]
        return [text for one in said if one is not None for part in one.parts if (text := part.text)]

    @property
    def abouts(self) -> list[dict[str, Any]]:
        """What posts are about."""
        return [update.metadata[METADATA] for update in self.updates if update.metadata and METADATA in update.metadata]

    def ends(self) -> dict[str, str]:
        """How steps ended, in the order in which they did."""
        return {about["step"]: about["status"] for about in self.abouts if "status" in about}

    def about(self, step: str) -> dict[str, Any]:
        """What the last end of a step was about."""
        return next(about for about in reversed(self.abouts) if about.get("step") == step and "status" in about)


async def ran(
    text: str,
    folder: Path,
    *,
    env: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    **wish: Any,
) -> Ran:
    """Run a document in a folder, with a store beside it, and return what came of it."""
    events: list[Event] = []

    async def told(event: Event) -> None:
        events.append(event)

    task = await run_document(
        read_document(text),
        wish,
        directory=folder,
        on_event=told,
        settings=settings or Settings(store=f"sqlite:///{folder}.db"),
        env=env or environment(folder),
    )
    return Ran(task, events)


def flow(*steps: str, head: str = "", **more: str) -> str:
    """A document of steps, each as lines of YAML; `head` stands above, `tail` below, `pattern` is dag."""
    body = "\n".join("      - " + step.strip("\n").replace("\n", "\n        ") for step in steps)
    workflow = more.get("workflow", "")
    return (
        f'version: "1"\nname: flow\n{head}\nswarm:\n  pattern: {more.get("pattern", "dag")}\n{more.get("swarm", "")}\n'
        f"workflows:\n  - name: main\n{workflow}\n    steps:\n{body}\n{more.get('tail', '')}\n"
    )
