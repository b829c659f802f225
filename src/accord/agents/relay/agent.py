"""Relay agent type, and a relay on this machine.

`POST /channels/messages` posts, and `GET /channels/messages?channel=..&limit=20` reads. A reader that states `after`
and `wait` need not poll. Nothing outlives the broker and nothing is unbounded. The API key determines the sender.
Broker and commands start and stop with the node. If the node is killed, the commands end by themselves.
"""

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import shlex
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.agents import subprocesses
from accord.agents.command_environment import command_variables, has_command
from accord.agents.command_safety import placeholder_problem
from accord.agents.messages import prompt
from accord.agents.relay import RELAYCAST, RelayA2AAdapter, conversation_id
from accord.agents.relay.channel import (
    CANCEL,
    DONE,
    FAILED,
    LATEST,
    PATH,
    ChannelMessage,
    RelayRequest,
    RelayUnavailable,
    parse_messages,
    request_text,
)
from accord.agents.subprocesses import Subprocess, SubprocessCommand, SubprocessNotStarted
from accord.api import Agent, AgentEnvironment, Context, Crash, Failed, agent_types
from accord.api.agent_types import AgentArguments, AgentType, Options, Seconds
from accord.retries import RetryPolicy

if TYPE_CHECKING:
    from aiohttp import web


MAX_MESSAGES = 1000
"""Maximum number of messages in a channel, far more than one request reads."""

MAX_CHANNELS = 100
MAX_TEXT = 4 * 1024 * 1024
"""Maximum length of a message, in characters."""

MAX_BODY = MAX_TEXT * 2 + 1024
MAX_WAIT_SECONDS = 25.0
"""Maximum time that a reader may wait, in seconds; shorter than the idle timeouts of proxies."""


class BrokerPost(Struct, frozen=True, kw_only=True):
    """The body of a post."""

    channel: Annotated[str, Meta(min_length=1, max_length=200)]
    text: Annotated[str, Meta(max_length=MAX_TEXT)]


class Broker:
    """Channels in memory, and an HTTP server for them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Accept callers with one of `keys`, which maps each key to its sender."""
        self._keys = dict(keys)
        self._channels: dict[str, deque[dict[str, Any]]] = {}
        self._count = 0
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start listening, and return the URL."""
        from aiohttp import web

        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post(PATH, self._handle_post)
        app.router.add_get(PATH, self._handle_read)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return f"http://{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening, and delete all messages."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._channels.clear()

    async def post(self, sender: str, channel: str, text: str) -> dict[str, Any]:
        """Add a message to a channel, and return it."""
        async with self._changed:
            self._count += 1
            created_at = datetime.now(UTC).isoformat()
            message = {"id": self._count, "channel": channel, "from": sender, "text": text, "created_at": created_at}
            self._channels.setdefault(channel, deque(maxlen=MAX_MESSAGES)).append(message)
            self._changed.notify_all()
        return message

    async def read(
        self, channel: str, *, limit: int = LATEST, after: int = 0, wait: float = 0.0
    ) -> list[dict[str, Any]]:
        """Return the latest messages, or the next ones with `after`; wait up to `wait` seconds for the first one."""

        def page() -> list[dict[str, Any]]:
            new = [message for message in self._channels.get(channel, ()) if message["id"] > after]
            return new[: max(1, limit)] if after else new[-max(1, limit) :]

        if wait > 0 and not page():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait), self._changed:
                    await self._changed.wait_for(lambda: bool(page()))
        return page()

    async def _handle_post(self, request: "web.Request") -> "web.Response":
        sender = self._sender(request)
        if sender is None:
            return _reply({"error": "no such key"}, 401)
        try:
            posted = msgspec.json.decode(await request.read(), type=BrokerPost)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _reply({"error": str(error)}, 400)
        if posted.channel not in self._channels and len(self._channels) >= MAX_CHANNELS:
            return _reply({"error": "too many channels"}, 429)
        return _reply(await self.post(sender, posted.channel, posted.text), 201)

    async def _handle_read(self, request: "web.Request") -> "web.Response":
        if self._sender(request) is None:
            return _reply({"error": "no such key"}, 401)
        query = request.query
        try:
            limit, after = int(query.get("limit", LATEST)), int(query.get("after", 0))
            wait = min(float(query.get("wait", 0)), MAX_WAIT_SECONDS)
        except ValueError:
            return _reply({"error": "limit, after and wait are numbers"}, 400)
        return _reply(await self.read(query.get("channel", ""), limit=limit, after=after, wait=wait), 200)

    def _sender(self, request: "web.Request") -> str | None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        presented = key.strip().encode()
        matches = [name for known, name in self._keys.items() if hmac.compare_digest(known.encode(), presented)]
        return matches[0] if matches else None


def _reply(value: Any, status: int) -> "web.Response":
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


# --- commands that answer ---------------------------------------------------------------------------------------------

BASE_URL, API_KEY, CHANNEL, AGENT = "RELAY_BASE_URL", "RELAY_API_KEY", "RELAY_CHANNEL", "RELAY_AGENT_NAME"
"""Environment variables of an agent for its channel."""

TASK_ID, CONTEXT_ID = "RELAY_TASK_ID", "RELAY_CONTEXT_ID"
"""Environment variables of a command for the ids of its request."""

PLACEHOLDER, CONVERSATION = "{prompt}", "{context}"
"""Placeholders in arguments for the request and for the name of its conversation."""

CONCURRENT_REQUESTS = 4
"""Maximum number of requests that a command answers at the same time."""

MAX_OUTPUT = 1024 * 1024
"""Maximum size of a command's output in bytes; the rest is left out with a note."""

GRACE_SECONDS = 2.0
"""Time between SIGTERM and SIGKILL, in seconds."""

log = logging.getLogger("accord.relay")


class CommandFailed(Exception):
    """A command could not be started, or exited with an error."""


class ChannelWorker:
    """Answers the requests in a channel with a command, which is started for each request."""

    def __init__(self, broker: Broker, channel: str, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._broker = broker
        self._channel = channel
        self._name = name
        self._command = command
        self._env = env
        self._requests: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def run(self) -> None:
        """Answer requests until canceled."""
        last = 0
        try:
            while True:
                page = await self._broker.read(self._channel, after=last, wait=MAX_WAIT_SECONDS)
                for entry in parse_messages(page):
                    self._handle(entry)
                last = page[-1]["id"] if page else last
        finally:
            for request in self._requests.values():
                request.cancel()
            await asyncio.gather(*self._requests.values(), return_exceptions=True)

    def _handle(self, entry: ChannelMessage) -> None:
        """Start the command for a request, or stop it for a CANCEL."""
        tag = entry.tag or ""
        if entry.word == CANCEL and tag in self._requests:
            self._requests[tag].cancel()
        elif entry.is_request and entry.sender != self._name and tag not in self._requests:
            request = asyncio.create_task(self._answer(tag, entry), name=f"relay {tag}")
            self._requests[tag] = request
            request.add_done_callback(lambda _: self._requests.pop(tag, None))

    async def _answer(self, tag: str, entry: ChannelMessage) -> None:
        context = entry.context or tag
        command = [word.replace(CONVERSATION, context) for word in self._command]
        env = {**self._env, TASK_ID: tag, CONTEXT_ID: context}
        async with self._slots:
            try:
                text = f"{DONE} [a2a:{tag}] {await _run(command, request_text(entry), env)}"
            except CommandFailed as error:
                text = f"{FAILED} [a2a:{tag}] {error}"
        await self._broker.post(self._name, self._channel, text)


async def _run(command: Sequence[str], text: str, env: Mapping[str, str]) -> str:
    """Run a command and return its output. The text is its input, or replaces the placeholder in its arguments."""
    arguments = _fill(command, text)
    output = b""
    try:
        process = await _start(arguments, env)
    except SubprocessNotStarted as error:
        raise CommandFailed(f"{command[0]} cannot be started: {error}") from None
    try:
        process.feed(text.encode() if arguments == list(command) else b"")
        while data := await process.read():
            output += data if len(output) <= MAX_OUTPUT else b""
        status = await process.ended()
    finally:
        await process.stop()
    if status:
        lines = process.tail.strip().splitlines()
        raise CommandFailed(f"exit status {status}{': ' + lines[-1] if lines else ''}")
    note = "\n[the rest is left out]" if len(output) > MAX_OUTPUT else ""
    return output[:MAX_OUTPUT].decode("utf-8", "replace").strip() + note


async def _start(command: Sequence[str], env: Mapping[str, str], *, inherits_output: bool = False) -> Subprocess:
    return await subprocesses.start(
        SubprocessCommand(
            argv=command, directory=Path.cwd(), env=env, grace=GRACE_SECONDS, inherits_output=inherits_output
        )
    )


def _fill(command: Sequence[str], text: str) -> list[str]:
    """Return a command with the text in its placeholder, protected from being parsed as a flag."""
    return [
        word.replace(PLACEHOLDER, f" {text}" if word == PLACEHOLDER and last != "--" and text.startswith("-") else text)
        for last, word in zip(("", *command), command, strict=False)
    ]


# --- the agent --------------------------------------------------------------------------------------------------------

POLL_SECONDS = 0.2
"""Interval of reads, in seconds; the channel is on this machine."""

SENDER = "a2a"
"""Sender name of Accord's own messages."""

RESTARTS = RetryPolicy(first_seconds=1.0, max_seconds=30.0, jitter=(1.0, 1.0))
"""Delays before a native agent that ended is restarted."""

CANCEL_SECONDS = 2.0


class LocalRelay(RelayA2AAdapter):
    """The agents of a channel on this machine, one of which is started here if there is a command for it."""

    def __init__(
        self,
        command: Sequence[str] = (),
        *,
        native: bool = False,
        channel: str = "general",
        target_agent: str | None = None,
        broker_port: int = 0,
        poll_interval: float = POLL_SECONDS,
        timeout: float = 300.0,
        pass_env: Sequence[str] = (),
    ) -> None:
        """Start `command` as the agent `target_agent`; a `native` command uses the channel itself.

        The command inherits the common variables of the server's environment, and those in `pass_env`.
        """
        super().__init__(secrets.token_urlsafe(32), channel, target_agent, poll_interval=poll_interval, timeout=timeout)
        self.agent_key = secrets.token_urlsafe(32)
        self.profile = replace(self.profile, crash=Crash.RESTART)  # earlier requests are gone with the broker
        self.command = list(command)
        self._name = target_agent or "agent"
        self._native = native
        self._pass_env = pass_env
        self._port = broker_port
        self._broker: Broker | None = None
        self._work: asyncio.Task[None] | None = None

    async def start(self, node: AgentEnvironment) -> None:
        """Start the broker, and the agent."""
        self._broker = Broker({self.api_key: SENDER, self.agent_key: self._name})
        self.base_url = await self._broker.start(port=self._port)
        if self.command:
            env = command_variables(os.environ, self._pass_env)
            work = self._keep_native(env) if self._native else self._answer(self._broker, env)
            self._work = asyncio.create_task(work, name=f"relay agent {self._name}")

    async def stop(self) -> None:
        """Stop the agent, and the broker."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
            self._work = None
            await subprocesses.wait_until_stopped()
        await super().stop()
        if self._broker is not None:
            await self._broker.stop()
            self._broker = None

    async def run(self, ctx: Context) -> None:
        """Post the request and write the answer. If the execution is canceled or fails, post a CANCEL for the agent."""
        try:
            await super().run(ctx)
        except (asyncio.CancelledError, Failed):  # an agent that has already finished ignores it
            await self._cancel_request(ctx.task_id)
            raise

    async def _posted_request(self, ctx: Context) -> RelayRequest:
        """Post the request again, because an earlier one is gone with its broker."""
        return await self.ask(await self.before(prompt(ctx.message.parts), ctx.task_id, conversation_id(ctx)))

    async def _cancel_request(self, tag: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.relay.post(f"{CANCEL} [a2a:{tag}]")
        except (RelayUnavailable, TimeoutError) as error:
            log.warning("relay.not_stopped", extra={"task_id": tag, "reason": str(error)})

    def environment(self) -> dict[str, str]:
        """Return the variables that an agent needs to join the channel."""
        return {
            BASE_URL: self.base_url,
            API_KEY: self.agent_key,
            CHANNEL: self.channel,
            AGENT: self._name,
        }

    async def _answer(self, broker: Broker, env: Mapping[str, str]) -> None:
        about = {CHANNEL: self.channel, AGENT: self._name}
        await ChannelWorker(broker, self.channel, self._name, self.command, {**env, **about}).run()

    async def _keep_native(self, env: Mapping[str, str]) -> None:
        """Run the agent, and restart it whenever it ends."""
        ends, loop, log_extra = 0, asyncio.get_running_loop(), {"agent": self._name}
        while True:
            started_at = loop.time()
            try:
                process = await _start(self.command, {**env, **self.environment()}, inherits_output=True)
            except SubprocessNotStarted as error:
                log.error("relay.not_started", extra={**log_extra, "reason": str(error)})
            else:
                log.info("relay.started", extra={**log_extra, "pid": process.pid})
                try:
                    process.feed(b"")
                    status = await process.ended()
                finally:
                    await process.stop()
                log.error("relay.ended", extra={**log_extra, "status": status})
            ends = 1 if loop.time() - started_at > RESTARTS.max_seconds else ends + 1
            await asyncio.sleep(RESTARTS.delay(ends))


class RelayOptions(Options, frozen=True, kw_only=True):
    """Options of a channel: of the relay at `base_url`, or of a local broker with the agent `command`.

    A command receives the request as its input, or in an argument at `{prompt}`. A `native` command reads the channel
    itself. A command that is missing when the server starts is an error, unless `installed_later` is set. A program
    that runs its arguments, such as `sh -c`, may have `{prompt}` only with `allow_interpreter`. The command inherits
    the common variables of the server's environment, and those in `pass_env`. `timeout` limits the time for an answer,
    in seconds.
    """

    relay_api_key: str | None = None
    channel: Annotated[str, Meta(min_length=1)] = "general"
    target_agent: str | None = None
    base_url: str = RELAYCAST
    poll_interval: Seconds | None = None
    timeout: Seconds | None = 300.0
    command: str | tuple[str, ...] = ()
    native: bool = False
    allow_interpreter: bool = False
    pass_env: tuple[str, ...] = ()
    installed_later: bool = False

    def __repr__(self) -> str:
        return f"RelayOptions(channel={self.channel!r}, target_agent={self.target_agent!r})"  # the key is a secret


def make(given: AgentArguments) -> Agent:
    """Make an agent from its options."""
    options: RelayOptions = given.options
    agent = _agent(options, given.env or os.environ)
    own = agent.profile
    configured = agent_types.profile(given, crash=own.crash, name=own.name, description=own.description)
    agent.profile = replace(
        configured, timeout=None, attempts=max(own.attempts, configured.attempts), output_modes=own.output_modes
    )
    return agent


def _agent(options: RelayOptions, env: Mapping[str, str]) -> RelayA2AAdapter:
    command = shlex.split(options.command) if isinstance(options.command, str) else list(options.command)
    timeout = options.timeout or 300.0
    if problem := placeholder_problem(command, PLACEHOLDER, is_allowed=options.allow_interpreter):
        raise ValueError(f"command: {problem}")
    if not command:
        if not options.relay_api_key:
            raise ValueError("relay_api_key: set the key of the relay, or a command that answers in a local channel")
        key, interval = options.relay_api_key, options.poll_interval or 2.0
        return RelayA2AAdapter(key, options.channel, options.target_agent, options.base_url, interval, timeout)
    if not options.installed_later and not has_command(command[0], env, os.curdir):
        raise ValueError(
            f"command: there is no {command[0]} on this machine: install it, say where it is, or say"
            " installed_later = true"
        )
    return LocalRelay(
        command,
        native=options.native,
        channel=options.channel,
        target_agent=options.target_agent or "Worker1",
        poll_interval=options.poll_interval or POLL_SECONDS,
        timeout=timeout,
        pass_env=options.pass_env,
    )


AGENT_TYPE = AgentType(name="relay", options=RelayOptions, make=make)
