"""Methods of a flow, done once: what each gave is kept with the flow's state, and given back when a run begins anew.

So a run that was lost, or that waited for an answer, goes on with the methods that were not finished. What cannot be
written as JSON and read again is not kept, and its method is done again. `flow` stands above, the bridge to the run's
loop below.
"""

import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any

import msgspec
from msgspec import Struct

from accord.agents.crewai.thread import Bridge
from accord.agents.naming import named
from accord.engine.context import Context

PLACE: ContextVar[str | None] = ContextVar("place", default=None)
"""The method that runs, and which time it is."""

log = logging.getLogger("accord.agents.crewai")


class Value(Struct, frozen=True):
    """Something as JSON; a model of pydantic's has the name of its class."""

    json: Any
    model: str | None = None


class Done(Struct, frozen=True):
    """What a method gave, and the state of the flow after it."""

    result: Value
    state: dict[str, Any]


class Methods:
    """The methods of one flow in one run."""

    def __init__(self, ctx: Context, flow: Any, bridge: Bridge) -> None:
        """Have every method of `flow` done at most once for the task."""
        self.times = Counter[str]()
        self._ctx = ctx
        self._flow = flow
        self._bridge = bridge
        for name, method in flow._methods.items():
            flow._methods[name] = self._once(str(name), method)

    def _once(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method, updated=())  # or it would be marked as a coroutine function, which it is not
        def once(*args: Any, **named: Any) -> Any:
            place = self._begin(name)
            if (done := self._known(place)) is not None:
                self._flow._restore_state(done.state)
                return _read(done.result)
            result = method(*args, **named)
            if inspect.isawaitable(result):  # a flow awaits what its methods give
                return self._awaited(name, place, result)
            self._bridge.do(self._finish(name, place, result))
            return result

        return once

    async def _awaited(self, name: str, place: str, result: Awaitable[Any]) -> Any:
        PLACE.set(place)
        found = await result
        await self._bridge.done(self._finish(name, place, found))
        return found

    def _begin(self, name: str) -> str:
        self._bridge.check()
        self.times[name] += 1
        place = f"{name}/{self.times[name]}"
        PLACE.set(place)
        return place

    def _known(self, place: str) -> Done | None:
        kept = self._ctx.kept(f"crewai/method/{place}")
        return None if kept is None else msgspec.json.decode(kept, type=Done)

    async def _finish(self, name: str, place: str, result: Any) -> None:
        """Say that a method is done, and keep what it gave."""
        await self._ctx.status(f"{name} is done")
        written, state = _written(result), written_state(self._flow.state)
        if written is None or state is None:
            log.info("method of a flow is not kept", extra={"task_id": self._ctx.task_id, "method": place})
            return
        await self._ctx.keep(f"crewai/method/{place}", msgspec.json.encode(Done(written, state)).decode())


def written_state(state: Any) -> dict[str, Any] | None:
    """Return the state of a flow as JSON, if it is the same when it is read again; its class the flow knows itself."""
    try:
        json = _json(state)
        is_same = (type(state).model_validate(json) if _is_model(state) else json) == state
    except (TypeError, ValueError):  # pydantic's errors and msgspec's are among them
        return None
    return json if is_same and isinstance(json, dict) else None


def _written(value: Any) -> Value | None:
    """Return something as JSON, if it is the same when it is read again."""
    kind = f"{type(value).__module__}:{type(value).__qualname__}" if _is_model(value) else None
    try:
        found = Value(_json(value), kind)
        return found if _read(found) == value else None
    except (TypeError, ValueError):
        return None


def _read(value: Value) -> Any:
    return value.json if value.model is None else named(value.model).model_validate(value.json)


def _json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value.model_dump(mode="json") if _is_model(value) else value))


def _is_model(value: Any) -> bool:
    return hasattr(type(value), "model_validate")
