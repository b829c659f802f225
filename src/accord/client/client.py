"""The client of one agent, remote or in this process.

    async with Client.connect("https://agents.example/trips") as client:
        reply = await client.send_text("a weekend in Lisbon")

It has the same interface as the service of a local agent (`a2a.A2A`), with texts and handles added.
`in_process` makes a client of any object with that interface: nothing is encoded, sent or authenticated.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from accord.a2a import A2A, METHODS, Caller
from accord.client import connection
from accord.client.auth import ClientAuth
from accord.client.connection import ConnectOptions
from accord.client.discovery import DiscoveredCard
from accord.client.http_link import header_pairs
from accord.client.interfaces import JSONRPC, AgentEndpoint
from accord.client.peer import AgentLink, AgentPeer, send_once, unconfirmed_error
from accord.client.remote_task import RemoteTask, TextStream, message_of
from accord.client.resolver import ResolveAgent
from accord.client.retries import Retries
from accord.client.subscription import AT_ANSWER, AT_REST, TaskSubscription
from accord.client.text import Reply
from accord.errors import PushNotSupported
from accord.model import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Request,
    Result,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)
from accord.model.base import Metadata
from accord.outbound import TIMEOUT_SECONDS, HttpTransport, Policy, TimedOut
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation

if TYPE_CHECKING:
    from accord.client.credentials import Keys


class Client:
    """A client of one agent.

    The agent identifies the caller by credentials, so the `caller` arguments of the interface are ignored.
    """

    def __init__(self, peer: AgentPeer, discovered: DiscoveredCard, *, timeout: float | None = TIMEOUT_SECONDS) -> None:
        """Create a client of a peer. `Client.connect` creates one from an address."""
        self.card: AgentCard = peer.card
        self.discovered = discovered
        self.timeout = timeout
        self.peer = peer
        self._opened = AsyncExitStack()

    @classmethod
    def connect(  # noqa: PLR0913  # one for each connection option
        cls,
        target: str | AgentCard,
        *,
        auth: ClientAuth | None = None,
        keys: "Keys | None" = None,
        service: str | None = None,
        transport: str | HttpTransport = "aiohttp",
        tls: ssl.SSLContext | None = None,
        policy: Policy | None = None,
        headers: Mapping[str, str] | None = None,
        extensions: Iterable[str] = (),
        timeout: float | None = TIMEOUT_SECONDS,
        dialect: str | DialectName | None = None,
        binding: str | None = None,
        allow_hosts: Iterable[str] = (),
        verify: Any = None,
        resolve: ResolveAgent | None = None,
        retries: Retries | None = None,
        is_idempotent: bool | None = None,
    ) -> "PendingClient":
        """Return a client of the agent at an address, card address, card or name.

        Names are looked up in the registry of the settings, or by `resolve`. Without `auth`, the first method of the
        card for which `keys` has credentials is chosen, under the id `service` if given. `timeout` applies to each
        answer, in seconds. `allow_hosts` lists further hosts that the card may name. With `verify`, a JWK set, one
        of its keys must have signed the card. `binding` and `dialect` narrow the choice of endpoints.
        `is_idempotent` declares that the agent recognizes duplicate messages. With a `policy`, only addresses that
        it allows are connected to.
        """
        options = ConnectOptions(
            auth=auth,
            keys=keys,
            service=service,
            transport=transport,
            tls=tls,
            policy=policy,
            headers=header_pairs(headers),
            extensions=tuple(extensions),
            timeout=timeout,
            dialect=DialectName(dialect) if isinstance(dialect, str) else dialect,
            binding=binding,
            allow_hosts=frozenset(allow_hosts),
            verify=verify,
            resolve=resolve,
            retries=retries or Retries(),
            is_idempotent=is_idempotent,
        )

        async def make() -> Client:
            async with AsyncExitStack() as stack:
                peer, discovered = await connection.connect(target, options, stack)
                client = cls(peer, discovered, timeout=timeout)
                client._opened = stack.pop_all()
            return client

        return PendingClient(make)

    @property
    def is_idempotent(self) -> bool:
        """Whether the agent is known to recognize duplicate messages."""
        return self.peer.is_idempotent

    async def close(self) -> None:
        """Close all connections. Started tasks continue at the agent."""
        await self._opened.aclose()

    # --- texts and handles ----------------------------------------------------------------------------------------

    async def send_text(
        self,
        text: str,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Metadata | None = None,
        seconds: float | None = None,
    ) -> Reply:
        """Send a text and wait for the answer.

        `seconds` replaces the client's timeout. Raises `Unconfirmed` when no answer arrives in time. The error
        contains the task, which continues, if it is known.
        """
        message = message_of(text, context_id=context_id, task_id=task_id)
        return Reply.of(await self.send(SendRequest(message=message, metadata=metadata), seconds=seconds))

    def stream_text(
        self,
        text: str,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> TextStream:
        """Send a text and yield the answer as it arrives.

        An agent that does not stream is called as well.
        """
        message = message_of(text, context_id=context_id, task_id=task_id)
        return TextStream(self.peer, SendRequest(message=message, metadata=metadata))

    async def start(
        self,
        content: Any,
        *,
        context_id: str | None = None,
        task_id: str | None = None,
        push: PushConfig | None = None,
        metadata: Metadata | None = None,
        modes: Iterable[str] = (),
    ) -> RemoteTask:
        """Send content without waiting, and return a handle of the task.

        With `push` the webhook is registered if the agent delivers webhooks. The handle's `is_pushed` is true if it
        does. `modes` are the accepted media types of the answer.
        """
        offered = push if self.card.capabilities.push_notifications else None
        message = message_of(content, context_id=context_id, task_id=task_id)
        configuration = SendConfiguration(
            return_immediately=True, task_push_notification_config=offered, accepted_output_modes=tuple(modes)
        )
        request = SendRequest(message=message, configuration=configuration, metadata=metadata)
        try:
            answer = await send_once(self.peer, request, seconds=self.timeout)
        except PushNotSupported:
            if offered is None:
                raise
            offered, plain = None, replace(configuration, task_push_notification_config=None)
            answer = await send_once(self.peer, replace(request, configuration=plain), seconds=self.timeout)
        return RemoteTask(self.peer, answer, is_pushed=offered is not None and isinstance(answer, Task))

    def task(self, task_id: str, *, context_id: str | None = None, after: int | None = None) -> RemoteTask:
        """Return a handle for a task by its id. `after` is the sequence number of the last seen event."""
        return RemoteTask(self.peer, task_id, context_id=context_id, after=after)

    # --- the interface --------------------------------------------------------------------------------------------

    async def send(
        self, request: SendRequest, caller: Caller | None = None, *, seconds: float | None = None
    ) -> Task | Message:
        """Send a message and return the task or the message that answers it.

        Waits until the task ends or waits for its caller, unless the request asks to return immediately.
        """
        seconds = self.timeout if seconds is None else seconds
        answer = await send_once(self.peer, request, seconds=seconds)
        configuration = request.configuration
        if isinstance(answer, Message) or answer.status.state in AT_REST:
            return answer
        if configuration is not None and configuration.return_immediately:
            return answer
        try:
            async with asyncio.timeout(seconds):  # some agents return the task at once
                return await self._settled(answer, configuration)
        except TimeoutError:
            late = TimedOut(f"Nothing within {seconds:g} seconds", was_sent=True)
            raise unconfirmed_error(request.message.message_id, late, answer.id) from None

    async def _settled(self, task: Task, configuration: SendConfiguration | None) -> Task:
        async with aclosing(TaskSubscription(self.peer, task_id=task.id, stops=AT_REST).go_on()) as events:
            async for _ in events:
                pass
        length = None if configuration is None else configuration.history_length
        return await self.get(GetRequest(id=task.id, history_length=length))

    def stream(
        self, request: SendRequest, caller: Caller | None = None, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Send a message and yield the task's events, reconnecting as needed. The first event is the task."""
        return TaskSubscription(self.peer, after=after, stops=AT_ANSWER).send(request)

    async def get(self, request: GetRequest, caller: Caller | None = None) -> Task:
        """Read one task."""
        return cast("Task", await self.peer.ask(Operation.GET, request))

    async def list(self, request: TaskFilter, caller: Caller | None = None) -> TaskPage:
        """List tasks, newest status first."""
        return cast("TaskPage", await self.peer.ask(Operation.LIST, request))

    async def cancel(self, request: CancelRequest, caller: Caller | None = None) -> Task:
        """Cancel one task."""
        return cast("Task", await self.peer.ask(Operation.CANCEL, request))

    def subscribe(
        self, request: SubscribeRequest, caller: Caller | None = None, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yield a task's events until it ends, reconnecting as needed."""
        return TaskSubscription(self.peer, task_id=request.id, after=after).go_on()

    async def push_set(self, request: PushConfig, caller: Caller | None = None) -> PushConfig:
        """Create or replace a webhook."""
        return cast("PushConfig", await self.peer.ask(Operation.PUSH_SET, request))

    async def push_get(self, request: PushGetRequest, caller: Caller | None = None) -> PushConfig:
        """Read a webhook."""
        return cast("PushConfig", await self.peer.ask(Operation.PUSH_GET, request))

    async def push_list(self, request: PushListRequest, caller: Caller | None = None) -> PushPage:
        """List a task's webhooks."""
        return cast("PushPage", await self.peer.ask(Operation.PUSH_LIST, request))

    async def push_delete(self, request: PushDeleteRequest, caller: Caller | None = None) -> int:
        """Remove webhooks and return their number."""
        return cast("int", await self.peer.ask(Operation.PUSH_DELETE, request))

    async def extended_card(self, request: CardRequest, caller: Caller | None = None) -> AgentCard:
        """Read the card for authenticated callers."""
        return cast("AgentCard", await self.peer.ask(Operation.EXTENDED_CARD, request))


class PendingClient:
    """A client that is not connected yet: `async with` it, or await it and close the client yourself."""

    def __init__(self, connect: Callable[[], Awaitable[Client]]) -> None:
        self._connect = connect
        self._client: Client | None = None

    def __await__(self) -> Generator[Any, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()


LOCAL_URL = "local:"
"""The address of an agent in this process."""


class LocalLink:
    """A link to an agent of this process, as one caller."""

    dialect = DialectName.V1
    binding = "LOCAL"
    resumable = True

    def __init__(self, agent: A2A, caller: Caller) -> None:
        self._agent = agent
        self._caller = caller

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Call the agent. The timeout is ignored."""
        return cast("Result", await getattr(self._agent, METHODS[operation])(request, self._caller))

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Call the agent and yield its events."""
        return cast("AsyncIterator[Event]", getattr(self._agent, METHODS[operation])(request, self._caller, after))

    async def close(self) -> None:
        """Do nothing: the agent does not belong to the link."""


def in_process(agent: A2A, *, caller: Caller | None = None, card: AgentCard | None = None) -> Client:
    """Return a client of an agent of this process.

    Without a card, the agent is assumed to offer all capabilities.
    """
    link: AgentLink = LocalLink(agent, caller or Caller())
    stated = card or _LOCAL_CARD
    endpoint = AgentEndpoint(binding=JSONRPC, dialect=DialectName.V1, url=LOCAL_URL)
    peer = AgentPeer(stated, (endpoint,), lambda _: link)
    return Client(peer, DiscoveredCard(card=stated, url=LOCAL_URL, document=b""), timeout=TIMEOUT_SECONDS)


_LOCAL_CARD = AgentCard(
    name="local",
    description="An agent of this process",
    version="",
    supported_interfaces=(),
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=True,
        extended_agent_card=True,
        extensions=(AgentExtension(uri=IDEMPOTENT_SEND), AgentExtension(uri=NUMBERED_EVENTS)),
    ),
    default_input_modes=(),
    default_output_modes=(),
    skills=(),
)
