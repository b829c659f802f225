"""What settings may say about an agent that is a model behind an address, with the reasons for the defaults.

These are plain values that check themselves; what is sent because of them is `apis`, and when is `call`.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from accord.agents.kinds import Options, Seconds

Count = Annotated[int, Meta(ge=0)]
Price = Annotated[float, Meta(ge=0)]


class ChatOptions(Options, frozen=True, kw_only=True):
    """A model and the way to it; `base_url` is as OpenAI's own libraries take it.

    `extra` are further members of each request, as the API names them. Of the conversation the model is reminded of
    `history` earlier messages. `input_price` and `output_price` are for a million tokens, and make the cost.
    """

    SECRET = frozenset({"api_key", "headers"})

    model: str
    base_url: str = "http://localhost:11434/v1"
    api: Literal["openai", "ollama"] = "openai"
    api_key: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    system_prompt: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    keep_alive: str | int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    history: Count = 100
    input_price: Price = 0.0
    output_price: Price = 0.0
    retries: Count = 3
    start_seconds: Seconds = 300.0
    """Until the answer begins: a model that is not in memory yet is loaded first."""
    silent_seconds: Seconds = 120.0
    """Between two pieces of it."""
    answer_seconds: Seconds = 1800.0
    """Until it is whole, with all repetitions: a slow machine that says the longest its model can is done by then."""

    def __post_init__(self) -> None:
        """Refuse what would have no effect."""
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError("`base_url` must begin with http:// or https://")
        if self.keep_alive is not None and self.api != "ollama":
            raise ValueError('`keep_alive` is of Ollama\'s own API: set api = "ollama"')

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return tuple(secret for secret in (self.api_key, *self.headers.values()) if secret)
