"""What settings may say about a planner, with the reasons for the defaults.

Plain values that check themselves; what is planned because of them is `planning`, what a model is asked `agent`.
"""

from typing import Annotated, Any

from msgspec import Meta, field

from accord.agents.chat import ChatOptions
from accord.agents.kinds import Options

PROMPT = """You plan work for a team of agents. Break what the user wants into at most {most} tasks that can be done \
independently, and plan them with planTasks; name for each the agent that suits it best. Tasks do not begin by \
themselves: use updateTask with the status "working" when the user wants one to begin, "canceled" to drop it, and \
"completed" or "failed" with a result when the user says how it went. Answer questions in a sentence or two.

The agents:
{agents}

The tasks so far:
{tasks}"""
"""What a model is told first."""


class PlannerOptions(Options, frozen=True, kw_only=True):
    """A planner: `agents` are those that it plans for, by their names, all that are served here if none is named.

    `default` is who gets what suits nobody. With a `model` that one is asked, at `base_url`, as OpenAI's API is.
    """

    SECRET = frozenset({"api_key", "headers"})

    agents: tuple[str, ...] = ()
    default: str | None = None
    most: Annotated[int, Meta(ge=1, le=50)] = 8
    """Tasks of one prompt: as many as a person looks through before saying yes."""

    model: str | None = None
    base_url: str = "http://localhost:11434/v1"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    temperature: Annotated[float, Meta(ge=0)] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what would have no effect."""
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.model is None and (self.api_key or self.headers or self.extra):
            raise ValueError("Without a `model` nobody is asked: name one")

    def asking(self, system_prompt: str, tools: list[dict[str, Any]]) -> ChatOptions:
        """Return how the model is asked."""
        return ChatOptions(
            model=self.model or "",
            base_url=self.base_url,
            api_key=self.api_key,
            headers=self.headers,
            temperature=self.temperature,
            system_prompt=system_prompt,
            extra={"tools": tools, **self.extra},
        )
