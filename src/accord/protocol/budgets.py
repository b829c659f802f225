"""Usage and budgets of tasks: tokens and cost.

Usage and budgets are pure values. A caller states a budget as `{"maxTokens", "maxCost", "deadline"}` in the metadata of
a message. `storage.commands.steps` stores sums, and executions report to `engine.budgets`.
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
"""Decimal places of a cost: a token may cost less than a millionth, and sums of fractions show no stray digits."""

MAX_BUDGET = 2.0**53
"""The largest budget. Not every reader represents larger JSON numbers exactly."""

FARTHEST_SECONDS = 100.0 * 365 * 24 * 3600
"""Maximum seconds until a deadline. A later deadline is a mistake of units."""


class TokenUsage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens and cost used, of all models or of one."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        """Refuse negative and infinite values."""
        if self.input_tokens < 0 or self.output_tokens < 0 or not (isfinite(self.cost) and self.cost >= 0):
            raise ValueError("Tokens and costs that were used are not negative, and finite")

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.input_tokens + self.output_tokens

    def and_(self, more: "TokenUsage") -> "TokenUsage":
        """Return the sum of both."""
        return TokenUsage(
            input_tokens=self.input_tokens + more.input_tokens,
            output_tokens=self.output_tokens + more.output_tokens,
            cost=round(self.cost + more.cost, DIGITS),
        )

    def beyond(self, other: "TokenUsage") -> "TokenUsage":
        """Return the excess over another usage; negative differences count as zero."""
        return TokenUsage(
            input_tokens=max(0, self.input_tokens - other.input_tokens),
            output_tokens=max(0, self.output_tokens - other.output_tokens),
            cost=max(0.0, round(self.cost - other.cost, DIGITS)),
        )


class TotalUsage(TokenUsage, frozen=True, kw_only=True):
    """The total usage of a task, as in `usage` of its metadata."""

    models: dict[str, TokenUsage] = {}

    def since(self, before: "TotalUsage") -> list[tuple[TokenUsage, str | None]]:
        """Return the usage since `before`, per model, and last the usage without a model."""
        found: list[tuple[TokenUsage, str | None]] = [
            (use.beyond(before.models.get(model, TokenUsage())), model) for model, use in self.models.items()
        ]
        named = TokenUsage()
        for use, _ in found:
            named = named.and_(use)
        found.append((self.beyond(before).beyond(named), None))
        return [(use, model) for use, model in found if use != TokenUsage()]


class Budget(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Limits for one task together with its child tasks; None means unlimited."""

    max_tokens: int | None = None
    max_cost: float | None = None

    def tightened(self, other: "Budget") -> "Budget":
        """Return the tighter of both, for each kind of limit."""
        return Budget(
            max_tokens=smaller_limit(self.max_tokens, other.max_tokens),
            max_cost=smaller_limit(self.max_cost, other.max_cost),
        )

    def left(self, used: TokenUsage) -> "Budget":
        """Return the remaining budget."""
        return Budget(
            max_tokens=None if self.max_tokens is None else max(0, self.max_tokens - used.tokens),
            max_cost=None if self.max_cost is None else max(0.0, round(self.max_cost - used.cost, DIGITS)),
        )

    def over(self, used: TokenUsage) -> str | None:
        """Return the error message if the usage exceeds the budget, else None."""
        if self.max_tokens is not None and used.tokens > self.max_tokens:
            return f"The budget of {self.max_tokens} tokens is spent"
        if self.max_cost is not None and used.cost > self.max_cost:
            return f"The budget of {self.max_cost:g} (cost) is spent"
        return None


class BudgetAccount(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The usage of a task, with that of its child tasks, and its budget."""

    used: TokenUsage = TokenUsage()
    models: dict[str, TokenUsage] = {}
    budget: Budget = Budget()

    def charged(self, use: TokenUsage, model: str | None) -> "BudgetAccount":
        """Return the account with more usage, of a model if known."""
        models = self.models
        if model is not None:
            models = {**models, model: models.get(model, TokenUsage()).and_(use)}
        return replace(self, used=self.used.and_(use), models=models)

    def limited(self, budget: Budget) -> "BudgetAccount":
        """Return the account with a budget that is at least as tight."""
        return replace(self, budget=self.budget.tightened(budget))

    @property
    def shown(self) -> dict[str, Any]:
        """The usage in the metadata of the task, as callers see it."""
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
        """The limits on tokens and cost."""
        tokens = None if self.max_tokens is None else int(self.max_tokens)
        return Budget(max_tokens=tokens, max_cost=self.max_cost)

    def deadline_at(self, now_ms: int) -> int | None:
        """Return the deadline in epoch milliseconds. A message may still be repeated after it."""
        match self.deadline:
            case None:
                return None
            case str():
                at = _time(self.deadline)
                return None if at is None else round(at.timestamp() * 1000)
            case seconds:
                return now_ms + round(seconds * 1000)


def read_budget_request(metadata: Metadata | None, where: str = "message.metadata") -> BudgetRequest | None:
    """Return the budget in metadata; raises InvalidParams, which names the invalid member."""
    if metadata is None or metadata_keys.BUDGET not in metadata:
        return None
    field = f"{where}.{metadata_keys.BUDGET}"
    try:
        request = msgspec.convert(metadata[metadata_keys.BUDGET], BudgetRequest)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        raise invalid_field(f"{field}.{path.rstrip('`')}" if path else field, reason) from None
    if request.max_tokens is not None and not request.max_tokens.is_integer():
        raise invalid_field(f"{field}.maxTokens", "Expected a whole number")
    if isinstance(request.deadline, str) and _time(request.deadline) is None:
        raise invalid_field(f"{field}.deadline", "Expected seconds, or an ISO 8601 time with its zone")
    return request


def read_usage(metadata: Metadata | None) -> TotalUsage | None:
    """Return the usage in a task's metadata, or None if missing or invalid."""
    try:
        usage = msgspec.convert(
            (metadata or {}).get(metadata_keys.USAGE), TotalUsage, strict=False
        )  # protobuf has fractions only
    except msgspec.ValidationError:
        return None
    return usage if max(usage.tokens, usage.cost) <= MAX_BUDGET else None


def read_budget(metadata: Metadata | None) -> Budget:
    """Return the limits of a message's budget."""
    found = read_budget_request(metadata)
    return Budget() if found is None else found.budget


def budget_metadata(budget: Budget) -> Metadata | None:
    """Return message metadata with a budget, or None if it has no limits."""
    return None if budget == Budget() else {metadata_keys.BUDGET: msgspec.to_builtins(budget)}


def _time(text: str) -> datetime | None:
    """Return a time that states its zone, or None."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def smaller_limit(one: N | None, other: N | None) -> N | None:
    """Return the smaller of two limits, of which either may be None."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
