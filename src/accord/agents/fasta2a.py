"""A fasta2a `Worker` as an agent.

Its storage and its broker are the task's event log. The worker is unchanged except that it receives both when the agent
is made. `run_task` executes a turn. The broker starts nothing, because the engine has tasks, streams and webhooks. The
worker's state of a conversation is durable.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from accord.agents.turns import EventRecord, external_context, run_cancelable, run_turns, with_context_id
from accord.api import Context, Failed, Profile
from accord.api.agent_types import ANY_MEDIA, AgentArguments, AgentType, is_instance_of, needs, profile
from accord.model import Artifact, ArtifactUpdate, EventBody, Message, Role, StatusUpdate, Task, TaskState, TaskStatus
from accord.protocol import codec
from accord.protocol.dialects.v1 import V1
from accord.protocol.lifecycle import NOTHING, TERMINAL
from accord.protocol.sse import Frame
from accord.protocol.states import LOWER

KEY = "fasta2a/context"
"""Key of a worker's state of a conversation."""

_DIALECT = V1()
_STATES = {name: state for state, name in LOWER.items()}


class WorkerAgent:
    """An agent made from a worker."""

    def __init__(self, worker: Any, profile: Profile) -> None:
        """Run `worker`, and replace its storage and broker."""
        self.profile = profile
        self._worker = worker
        self._hosted: ContextVar[_Hosted] = ContextVar("hosted")
        self._conversation = _conversation(type(worker))
        worker.storage, worker.broker = _Storage(self._hosted.get), _Broker(self._hosted.get)

    async def run(self, ctx: Context) -> None:
        """Run the worker once for the task's message, and once for each answer."""

        async def turn(message: Message, record: EventRecord) -> None:
            hosted = _Hosted(ctx, record, self._conversation)
            self._hosted.set(hosted)
            sent = with_context_id(message, hosted.context_id)
            params = {
                "id": ctx.task_id,
                "context_id": hosted.context_id,
                "message": _type("Message").validate_python(_plain_message(sent)),
            }
            if ctx.task.metadata:
                params["metadata"] = ctx.task.metadata
            await run_cancelable(ctx, self._worker.run_task(params), cancel)
            await hosted.end()

        async def cancel() -> None:
            await self._worker.cancel_task({"id": ctx.task_id})

        await run_turns(ctx, turn)


class _Hosted:
    """One turn of a task, as its worker sees it."""

    def __init__(self, ctx: Context, record: EventRecord, conversation: Any) -> None:
        self.ctx = ctx
        self.context_id = external_context(ctx)
        self.state = TaskState.SUBMITTED  # workers refuse others: Accord's claim is unknown to them
        self._conversation = conversation
        self._record = record
        self._last: StatusUpdate | None = None
        self._whole: dict[str, Artifact] = {}
        self._streamed: dict[str, str] = {}

    async def load(self, history_length: int | None) -> Any:
        """Return the task."""
        await self.ctx.flush()
        task = self.ctx.task
        history = task.history[-history_length:] if history_length else task.history
        visible = replace(task, status=TaskStatus(state=self.state, timestamp=task.status.timestamp), history=history)
        return _task(with_context_id(visible, self.context_id))

    async def update(self, state: TaskState, artifacts: Sequence[Any], messages: Sequence[Any]) -> None:
        """Write the artifacts, messages and state that a worker stores."""
        ids = {"task_id": self.ctx.task_id, "context_id": self.ctx.context_id}
        for artifact in artifacts:
            await self.put(_body({"artifact_update": {**ids, "artifact": artifact, "last_chunk": True}}))
        bodies = [_body({"message": {**message, **ids}}) for message in messages]
        is_answered = state in TERMINAL and (self._whole or self._streamed)
        word = bodies.pop() if bodies and state is not TaskState.WORKING and not is_answered else None
        for message in bodies:
            await self.ctx.say(message)
        status = TaskStatus(state=state, message=word if isinstance(word, Message) else None)
        await self.put(StatusUpdate(task_id=self.ctx.task_id, context_id=self.ctx.context_id, status=status))

    async def put(self, body: EventBody) -> None:
        """Write an event of a worker. A terminal state is held back until the worker has returned."""
        content: EventBody | None = body
        if isinstance(body, StatusUpdate):
            self.state = body.status.state
            if self.state in TERMINAL:
                self._last = body if self._last is None or body.status.message else self._last
                content = None
        elif isinstance(body, ArtifactUpdate):
            content = self._new_content(body)
        if content is not None:
            await self._record.put(content)

    async def end(self) -> None:
        """Write the terminal state, if there is one."""
        if self._last is not None:
            await self._record.put(self._last)

    async def load_conversation(self) -> Any:
        """Return the worker's state of the conversation."""
        stored = await self.ctx.recall_context(KEY)
        return None if stored is None else self._conversation.validate_json(stored)

    async def store_conversation(self, context: Any) -> None:
        """Store the worker's state of the conversation."""
        try:
            encoded = self._conversation.dump_json(context).decode()
        except ValueError as error:  # pydantic's errors are
            raise Failed("The worker keeps something of the conversation that cannot be written as JSON") from error
        await self.ctx.remember_context(KEY, encoded)

    def _new_content(self, update: ArtifactUpdate) -> ArtifactUpdate | None:
        """Return the new content of an artifact. Workers stream it, then store it, then publish it whole."""
        artifact = update.artifact
        key, text = artifact.artifact_id, "".join(part.text or "" for part in artifact.parts)
        if update.append:
            self._streamed[key] = self._streamed.get(key, "") + text
            return update
        if self._whole.get(key) == artifact:
            return None
        self._whole[key] = artifact
        if self._streamed.get(key) == text and all(part.text is not None for part in artifact.parts):
            return replace(update, artifact=replace(artifact, parts=(NOTHING,)), append=True, last_chunk=True)
        return update


class _Storage:
    """A worker's storage, which contains only the current task."""

    def __init__(self, hosted: Callable[[], _Hosted]) -> None:
        self._hosted = hosted

    async def load_task(self, task_id: str, history_length: int | None = None) -> Any:
        hosted = self._hosted()
        return await hosted.load(history_length) if task_id == hosted.ctx.task_id else None

    async def submit_task(self, context_id: str, message: Any) -> Any:
        raise NotImplementedError("A worker cannot create tasks: a message starts one")

    async def update_task(
        self, task_id: str, state: str, new_artifacts: list[Any] | None = None, new_messages: list[Any] | None = None
    ) -> Any:
        hosted = self._hosted()
        if task_id != hosted.ctx.task_id:
            raise KeyError(task_id)
        await hosted.update(_STATES[state], new_artifacts or (), new_messages or ())
        return await hosted.load(None)

    async def load_context(self, context_id: str) -> Any:
        hosted = self._hosted()
        return await hosted.load_conversation() if context_id == hosted.context_id else None

    async def update_context(self, context_id: str, context: Any) -> None:
        hosted = self._hosted()
        if context_id != hosted.context_id:
            raise KeyError(context_id)
        await hosted.store_conversation(context)


class _Broker:
    """A worker's broker: publishes events; the engine starts and cancels tasks instead."""

    def __init__(self, hosted: Callable[[], _Hosted]) -> None:
        self._hosted = hosted

    @property
    def event_bus(self) -> "_Broker":
        return self

    async def emit(self, task_id: str, event: Any) -> None:
        await self._hosted().put(_body(event))

    async def close(self, task_id: str) -> None:
        """Do nothing; streams end when the task does."""


# --- its types --------------------------------------------------------------------------------------------------------


def _conversation(worker: type) -> Any:
    """Return the JSON adapter for the conversation, of the type that the worker's class declares."""
    from pydantic import TypeAdapter

    for base_class in worker.__mro__:
        for base in getattr(base_class, "__orig_bases__", ()):
            if getattr(base, "__name__", "") == "Worker" and (arguments := get_args(base)):
                return TypeAdapter(Any if isinstance(arguments[0], TypeVar) else arguments[0])
    return TypeAdapter(Any)


@cache
def _type(name: str) -> Any:
    """Return the adapter for one of fasta2a's types; members have our names, in snake case."""
    from fasta2a import schema
    from pydantic import TypeAdapter

    return TypeAdapter(getattr(schema, name))


def _task(task: Task) -> Any:
    plain = _plain(task)
    plain["status"] = {"state": LOWER[task.status.state], "timestamp": task.status.timestamp}
    plain["history"] = [_plain_message(message) for message in task.history]
    return _type("Task").validate_python(plain)


def _plain_message(message: Message) -> dict[str, Any]:
    return _plain(message) | {"role": "user" if message.role is Role.USER else "agent"}


def _plain(value: Message | Task) -> dict[str, Any]:
    members: dict[str, Any] = msgspec.json.decode(codec.encode(value))
    return members


def _body(event: Any) -> EventBody:
    """Return a worker's event: A2A 1.0 except for the names of states and roles."""
    from fasta2a.jsonrpc_v1 import to_v1

    plain = to_v1(_type("StreamResponse").dump_python(event, mode="json", by_alias=True))
    return _DIALECT.decode_event(Frame(data=codec.encode(plain)))


def make(given: AgentArguments) -> WorkerAgent:
    """Make an agent from a worker."""
    with needs("fasta2a 2", "fasta2a"):
        import fasta2a.jsonrpc_v1  # noqa: F401  # the types of A2A 1.0
    worker = given.target
    described = (type(worker).__doc__ or "").strip().partition("\n")[0]
    if described.startswith(f"{type(worker).__name__}("):
        described = ""  # which is a dataclass's default docstring
    name = type(worker).__name__
    own = profile(given, name=name, description=described, input_modes=ANY_MEDIA, output_modes=ANY_MEDIA)
    return WorkerAgent(worker, own)


AGENT_TYPE = AgentType(
    name="fasta2a", make=make, recognizes=lambda thing: is_instance_of(thing, "fasta2a.worker:Worker")
)
