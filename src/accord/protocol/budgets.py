"""Usage and budgets of tasks: tokens and cost.

These are pure values, and the one way in which a caller states a budget: `{"maxTokens", "maxCost", "deadline"}` in the
metadata of a message. Sums are stored by `storage.commands.steps`, executions report to `engine.budgets`.
"""

from datetime import datetime
from math import isfinite
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.model import metadata_keys
from accord.model.base import Metadata
from accord.protocol.codec import invalid_field

N = TypeVar("N", int, float)

DIGITS = 9
"""Places of a cost that count: a token may cost less than a millionth, and sums of fractions show no stray digits."""

MAX_BUDGET = 2.0**53
"""The largest budget: no JSON number beyond is read by everybody as it is written."""

FARTHEST_SECONDS = 100.0 * 365 * 24 * 3600
"""A deadline later than that is a mistake of units."""


class TokenUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was used, of all models or of one."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what no model can have used."""
        if self.input_tokens < 0 or self.output_tokens < 0 or not (isfinite(self.cost) and self.cost >= 0):
            raise ValueError("Tokens and costs that were used are not negative, and finite")

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def and_(self, more: "TokenUsage") -> "TokenUsage":
        """Return both together."""
        return TokenUsage(
            input_tokens=self.input_tokens + more.input_tokens,
            output_tokens=self.output_tokens + more.output_tokens,
            cost=round(self.cost + more.cost, DIGITS),
        )

    def beyond(self, other: "TokenUsage") -> "TokenUsage":
        """Return what is more than another; what is less counts as nothing."""
        return TokenUsage(
            input_tokens=max(0, self.input_tokens - other.input_tokens),
            output_tokens=max(0, self.output_tokens - other.output_tokens),
            cost=max(0.0, round(self.cost - other.cost, DIGITS)),
        )


class TotalUsage(TokenUsage, frozen=True, kw_only=True):
    """What a task has used in all, as it shows it itself: `usage` in its metadata."""

    models: dict[str, TokenUsage] = {}

    def since(self, before: "TotalUsage") -> list[tuple[TokenUsage, str | None]]:
        """Return what was used since then, model by model, and at last what no model is named for."""
        found: list[tuple[TokenUsage, str | None]] = [
            (use.beyond(before.models.get(model, TokenUsage())), model) for model, use in self.models.items()
        ]
        named = TokenUsage()
        for use, _ in found:
            named = named.and_(use)
        found.append((self.beyond(before).beyond(named), None))
        return [(use, model) for use, model in found if use != TokenUsage()]


class Budget(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one task may use up, together with the tasks that it starts; None is no limit."""

    max_tokens: int | None = None
    max_cost: float | None = None

    def tightened(self, other: "Budget") -> "Budget":
        """Return the tighter of both, for each kind of limit."""
        return Budget(
            max_tokens=smaller_limit(self.max_tokens, other.max_tokens),
            max_cost=smaller_limit(self.max_cost, other.max_cost),
        )

    def left(self, used: TokenUsage) -> "Budget":
        """Return what of it is left."""
        return Budget(
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - used.tokens),
            max_cost=None if self.max_cost is None else max(0.0, round(self.max_cost - used.cost, DIGITS)),
        )

    def over(self, used: TokenUsage) -> str | None:
        """Return what its caller is told if more was used; all of it may be."""
        if self.max_tokens is not None and used.tokens > self.max_tokens:
            return f"The budget of {self.max_tokens} tokens is spent"
        if self.max_cost is not None and used.cost > self.max_cost:
            return f"The budget of {self.max_cost:g} (cost) is spent"
        return None


class BudgetAccount(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a task has used so far, with the tasks that it has started, and what it may."""

    used: TokenUsage = TokenUsage()
    models: dict[str, TokenUsage] = {}
    budget: Budget = Budget()

    def charged(self, use: TokenUsage, model: str | None) -> "BudgetAccount":
        """Return the account after a use, of a model if that is known."""
        models = self.models
        if model is not None:
            models = {**models, model: models.get(model, TokenUsage()).and_(use)}
        return replace(self, used=self.used.and_(use), models=models)

    def limited(self, budget: Budget) -> "BudgetAccount":
        """Return the account with a budget that is at least as tight."""
        return replace(self, budget=self.budget.tightened(budget))

    @property
    def shown(self) -> dict[str, Any]:
        """How callers see it: `usage` in the metadata of their task."""
        shown: dict[str, Any] = msgspec.to_builtins(self.used)
        shown["totalTokens"] = self.used.tokens
        if self.models:
            shown["models"] = msgspec.to_builtins(self.models)
        return shown


class BudgetRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The budget that a caller states with a message; `deadline` is in seconds from now, or a time."""

    max_tokens: Annotated[float, Meta(ge=0, le=MAX_BUDGET)] | None = None  # in protobuf every number is a fraction
    max_cost: Annotated[float, Meta(ge=0, le=MAX_BUDGET)] | None = None
    deadline: Annotated[float, Meta(gt=0, le=FARTHEST_SECONDS)] | str | None = None

    @property
    def budget(self) -> Budget:
        """What of it is counted."""
        tokens = None if self.max_tokens is None else int(self.max_tokens)
        return Budget(max_tokens=tokens, max_cost=self.max_cost)

    def deadline_at(self, now_ms: int) -> int | None:
        """Return when the task must be done, in epoch milliseconds; whoever repeats a message may do so after that."""
        match self.deadline:
            case None:
                return None
            case str():
                at = _time(self.deadline)
                return None if at is None else round(at.timestamp() * 1000)
            case seconds:
                return now_ms + round(seconds * 1000)


def read_budget_request(metadata: Metadata | None, where: str = "message.metadata") -> BudgetRequest | None:
    """Return the budget that metadata state; raises InvalidParams, which names the member that is wrong."""
    if metadata is None or metadata_keys.BUDGET not in metadata:
        return None
    field = f"{where}.{metadata_keys.BUDGET}"
    try:
        found = msgspec.convert(metadata[metadata_keys.BUDGET], BudgetRequest)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        raise invalid_field(f"{field}.{path.rstrip('`')}" if path else field, reason) from None
    if found.max_tokens is not None and not found.max_tokens.is_integer():
        raise invalid_field(f"{field}.maxTokens", "Expected a whole number")
    if isinstance(found.deadline, str) and _time(found.deadline) is None:
        raise invalid_field(f"{field}.deadline", "Expected seconds, or an ISO 8601 time with its zone")
    return found


def read_usage(metadata: Metadata | None) -> TotalUsage | None:
    """Return what a task's metadata say that it has used; what cannot be understood counts as not said."""
    try:
        found = msgspec.convert(
            (metadata or {}).get(metadata_keys.USAGE), TotalUsage, strict=False
        )  # protobuf has fractions only
    except msgspec.ValidationError:
        return None
    return found if max(found.tokens, found.cost) <= MAX_BUDGET else None


def read_budget(metadata: Metadata | None) -> Budget:
    """Return what of a message's budget is counted."""
    found = read_budget_request(metadata)
    return Budget() if found is None else found.budget


def budget_metadata(budget: Budget) -> Metadata | None:
    """Return the metadata of a message that states a budget, if it has limits."""
    return None if budget == Budget() else {metadata_keys.BUDGET: msgspec.to_builtins(budget)}


def _time(text: str) -> datetime | None:
    """Return a time that is stated with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def smaller_limit(one: N | None, other: N | None) -> N | None:
    """Return the smaller of two limits, of which either may be none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
