"""CrewAI flows: a kickoff for each task, resumed after its finished methods.

A flow starts with its last state in the conversation. It asks its caller the questions that it would ask at a terminal.
Each method's result is stored with the flow's state if both survive a round trip through JSON. Otherwise the method
runs again.
"""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec
from msgspec import Struct

from accord.agents.crewai.kickoffs import InputNeeded, LoopBridge, input_files, run_with_questions
from accord.agents.loader import import_object
from accord.agents.messages import answer_id, prompt
from accord.api import Context, Failed, Profile, Rejected

PLACE: ContextVar[str | None] = ContextVar("place", default=None)
"""The running method and the number of its call."""

log = logging.getLogger("accord.agents.crewai")


class StoredValue(Struct, frozen=True):
    """A value as JSON, with the name of its class if that is a pydantic model."""

    json: Any
    model: str | None = None


class FinishedMethod(Struct, frozen=True):
    """The result of a method, and the flow's state after it."""

    result: StoredValue
    state: dict[str, Any]


class FlowMethods:
    """The methods of one flow in one execution."""

    def __init__(self, ctx: Context, flow: Any, bridge: LoopBridge) -> None:
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
            if (done := self._finished(place)) is not None:
                self._flow._restore_state(done.state)
                return _restored_value(done.result)
            result = method(*args, **named)
            if inspect.isawaitable(result):  # a flow awaits the results of its methods
                return self._awaited(name, place, result)
            self._bridge.do(self._finish(name, place, result))
            return result

        return once

    async def _awaited(self, name: str, place: str, result: Awaitable[Any]) -> Any:
        PLACE.set(place)
        value = await result
        await self._bridge.done(self._finish(name, place, value))
        return value

    def _begin(self, name: str) -> str:
        self._bridge.check()
        self.times[name] += 1
        place = f"{name}/{self.times[name]}"
        PLACE.set(place)
        return place

    def _finished(self, place: str) -> FinishedMethod | None:
        stored = self._ctx.kept(f"crewai/method/{place}")
        return None if stored is None else msgspec.json.decode(stored, type=FinishedMethod)

    async def _finish(self, name: str, place: str, result: Any) -> None:
        """Report that a method has finished, and store its result."""
        await self._ctx.status(f"{name} is done")
        written, state = _stored_value(result), stored_state(self._flow.state)
        if written is None or state is None:
            log.info("crewai.not_kept", extra={"task_id": self._ctx.task_id, "method": place})
            return
        await self._ctx.keep(f"crewai/method/{place}", msgspec.json.encode(FinishedMethod(written, state)).decode())


def stored_state(state: Any) -> dict[str, Any] | None:
    """Return the state of a flow as JSON without its class, or None if it does not survive a round trip."""
    try:
        json = _json(state)
        is_same = (type(state).model_validate(json) if _is_model(state) else json) == state
    except (TypeError, ValueError):  # pydantic's errors and msgspec's are among them
        return None
    return json if is_same and isinstance(json, dict) else None


def _stored_value(value: Any) -> StoredValue | None:
    """Return a value as JSON, or None if it does not survive a round trip."""
    kind = f"{type(value).__module__}:{type(value).__qualname__}" if _is_model(value) else None
    try:
        stored = StoredValue(_json(value), kind)
        return stored if _restored_value(stored) == value else None
    except (TypeError, ValueError):
        return None


def _restored_value(value: StoredValue) -> Any:
    return value.json if value.model is None else import_object(value.model).model_validate(value.json)


def _json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value.model_dump(mode="json") if _is_model(value) else value))


def _is_model(value: Any) -> bool:
    return hasattr(type(value), "model_validate")


TEXT_KEY = "input"
"""Field for the text in a state that has no obvious one."""

STATE = "crewai/state"

RUN_FIELDS = frozenset({"human_feedback_history", "last_human_feedback", "execution_context"})
"""Fields about a single run of a flow, which other runs do not inherit."""


class FlowQuestion(Struct, frozen=True):
    """A question of a flow and its place."""

    place: str
    text: str


class FlowAgent:
    """An agent made from a flow."""

    def __init__(self, thing: Any, profile: Profile, *, inputs_key: str | None, keep_state: bool) -> None:
        """Kick off flows like `thing`, which is a flow or a class of flows."""
        self.profile = profile
        self._thing = thing
        self._inputs_key = inputs_key
        self._keep_state = keep_state

    async def run(self, ctx: Context) -> None:
        """Kick off a flow, and again after each answer."""
        answers: dict[str, str] = {}
        questions = run_with_questions(
            ctx, lambda: self._kickoff(ctx, answers), FlowQuestion, lambda question: question.text
        )
        async for question, answer in questions:
            answers[question.place] = answer.text if answer.data is None else msgspec.json.encode(answer.data).decode()

    async def _kickoff(self, ctx: Context, answers: dict[str, str]) -> None:
        flow = new_flow(self._thing)
        await self._begin(ctx, flow)
        inputs, files = self._inputs(ctx, flow), input_files(ctx.message.parts)
        run = FlowKickoff(ctx, flow, answers)
        output = await run.done({**inputs, "id": self._id(ctx)}, files)
        if self._keep_state and flow.persistence is None:
            await self._remember(ctx, flow)
        await _write_output(ctx, output)

    def _id(self, ctx: Context) -> str:
        """Return the id of the state, which is unique to the caller. Callers cannot choose it."""
        identity = (ctx.tenant, ctx.caller.owner, ctx.context_id) if self._keep_state else (ctx.tenant, ctx.task_id)
        return str(uuid5(NAMESPACE_OID, "\0".join((self.profile.name, *identity))))

    async def _begin(self, ctx: Context, flow: Any) -> None:
        """Restore the state of the conversation, the same in every execution of the task."""
        if not self._keep_state or flow.persistence is not None:
            return  # a flow with persistence restores its own state, by the id
        stored = await ctx.keep(STATE, await ctx.recall_context(STATE) or "null")
        if (state := msgspec.json.decode(stored)) is not None:
            flow._restore_state(state)

    async def _remember(self, ctx: Context, flow: Any) -> None:
        state = stored_state(flow.state)
        if state is None:
            log.warning("crewai.state_not_kept", extra={"task_id": ctx.task_id})
            return
        await ctx.remember_context(STATE, msgspec.json.encode(state).decode())

    def _inputs(self, ctx: Context, flow: Any) -> dict[str, Any]:
        """Return the flow's inputs: the data, and the text in its field."""
        inputs = dict(ctx.data) if isinstance(ctx.data, dict) else {}
        inputs.pop("id", None)  # or a caller could load the state of another
        text = prompt(part for part in ctx.message.parts if part.data is msgspec.UNSET or not inputs)
        if text:
            inputs.setdefault(self._inputs_key or _text_field(flow.state, inputs), text)
        try:
            flow._initialize_state(inputs)
        except ValueError as error:
            raise Rejected(f"This is nothing that the flow can begin with: {error}") from error
        return inputs


class FlowKickoff:
    """One kickoff of a flow in its own thread and event loop.

    Methods may block, and the flow waits in its loop.
    """

    def __init__(self, ctx: Context, flow: Any, answers: dict[str, str]) -> None:
        self._ctx = ctx
        self._flow = flow
        self._answers = answers
        self._bridge = LoopBridge(ctx, lambda: flow.usage_metrics)
        self._methods = FlowMethods(ctx, flow, self._bridge)
        self._asks = Counter[str]()
        self._cancel: Callable[[], object] | None = None
        flow.stream = False
        flow.input_provider = self
        object.__setattr__(flow, "_request_human_feedback", self._feedback)  # which would read the server's terminal

    async def done(self, inputs: dict[str, Any], files: dict[str, Any]) -> Any:
        """Run the flow, and return its output."""
        try:
            return await self._bridge.run(lambda: asyncio.run(self._kickoff(inputs, files)))
        finally:
            if (cancel := self._cancel) is not None:
                with suppress(RuntimeError):  # it has ended meanwhile
                    cancel()

    # --- in the thread ---

    async def _kickoff(self, inputs: dict[str, Any], files: dict[str, Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        self._bridge.check()
        more = {"input_files": files} if files else {}
        try:
            with self._bridge.hooks():
                return await self._flow.kickoff_async(inputs=inputs, **more)
        finally:
            self._cancel = None

    def request_input(self, message: str, flow: Any, metadata: dict[str, Any] | None = None) -> str:
        """Return the answer to a method's question (`ask`), or end the kickoff with the question."""
        return self._answer_or_ask(PLACE.get() or "flow", message)

    def _feedback(self, message: str, output: Any, method_name: str = "", **_: Any) -> str:
        place = f"{method_name}/{self._methods.times[method_name]}/feedback"
        return self._answer_or_ask(place, f"{message}\n\n{output}")

    def _answer_or_ask(self, where: str, text: str) -> str:
        self._asks[where] += 1
        place = f"{where}/{self._asks[where]}"
        if place not in self._answers:
            raise InputNeeded(FlowQuestion(place, text))
        return self._answers[place]


# --- input and output -------------------------------------------------------------------------------------------------


def new_flow(thing: Any) -> Any:
    """Return a new flow for each execution, since a flow is its state."""
    if inspect.isclass(thing):
        return thing()
    fields = {name: getattr(thing, name) for name in thing.model_fields_set - RUN_FIELDS}
    kind = type(thing)
    if kind.__module__ == "crewai.flow.flow":  # it is made from a declaration, not a class
        return kind.model_validate(fields, context={"flow_definition": thing._definition})
    return kind(**fields)


def _text_field(state: Any, inputs: dict[str, Any]) -> str:
    """Return the field for the text: `input`, or the only text field that is left."""
    fields = getattr(type(state), "model_fields", None)
    if fields is None or TEXT_KEY in fields:
        return TEXT_KEY
    texts: list[str] = [
        name for name, field in fields.items() if field.annotation is str and name not in {"id", *inputs}
    ]
    if len(texts) != 1:
        raise Rejected(f"The flow takes data, by name: {', '.join(name for name in fields if name != 'id')}")
    return texts[0]


async def _write_output(ctx: Context, output: Any) -> None:
    """Write a flow's output, which may be the output of a crew."""
    if isinstance(output, BaseException):  # which flows return instead of raising
        raise Failed("The flow asked for feedback through a provider that Accord cannot reach")
    if hasattr(output, "json_dict") and hasattr(output, "raw"):
        data = output.json_dict if output.pydantic is None else output.pydantic
        output = output.raw if data is None else data
    if output is not None:
        await ctx.artifact(output, id=answer_id(ctx))
