"""The values that the runs of a document have in common: what steps `set`, and read as `{{state.NAME}}`.

Each run has written down what its own steps set, so a value that is lost on the way to the others is put there again
when the run goes on. Where they are kept is `storage.commands.namespaces`; a document that says `backend: memory`, or
nothing, keeps them to each run.
"""

from typing import Any

import msgspec

from accord.engine.context import Context
from accord.storage.commands import namespaces
from accord.storage.commands.namespaces import Shelf
from accord.storage.store import Store
from accord.workflows.plan import Plan

SET = "flow-set:"
"""What the keys of values begin with that the steps of a run have set."""


class Shared:
    """The values of one run, and what others of the same namespace have set before."""

    def __init__(self, ctx: Context, plan: Plan, store: Store | None) -> None:
        """Keep them for the caller of `ctx`; without a `store`, to the run."""
        self._ctx, self._state = ctx, plan.state
        is_kept = plan.state is not None and plan.state.backend == "database"
        self._store = store if is_kept else None
        self._shelf = Shelf(ctx.caller.owner, (plan.state.namespace if plan.state else None) or plan.name)
        self.values: dict[str, Any] = {}

    async def load(self) -> None:
        """Take what others have set, and then what this run has."""
        if self._store is not None:
            found = await self._store.read(namespaces.load, self._ctx.tenant, self._shelf)
            self.values = {key: msgspec.json.decode(value) for key, value in found.items()}
        entries = (entry for _, entry in self._ctx.journal.entries(SET))
        own = [msgspec.json.decode(entry, type=tuple[int, dict[str, Any]]) for entry in entries]
        for at, values in sorted(own, key=lambda one: one[0]):
            await self.put(values, at)

    def entry(self, step: str, attempt: int, values: dict[str, Any], at: int) -> dict[str, str]:
        """Return what a run writes down of what a step sets."""
        return {f"{SET}{step}:{attempt}": msgspec.json.encode((at, values)).decode()}

    async def put(self, values: dict[str, Any], at: int) -> None:
        """Set values, for the other runs as well if the document says so; what is written down is not lost."""
        self.values.update(values)
        if self._store is None:
            return
        ttl_ms = None if self._state is None or self._state.ttl is None else round(self._state.ttl * 1000)
        kept = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
        await self._store.do(namespaces.put, self._ctx.tenant, self._shelf, kept, at, ttl_ms)
