"""Relay agent type, and a relay on this machine.

`POST /channels/messages` posts, and `GET /channels/messages?channel=..&limit=20` reads. A reader that states `after`
and `wait` need not poll. Nothing outlives the broker and nothing is unbounded. The API key determines the sender.
Broker and command start and stop with the node. If the node is killed, the command ends by itself (`runner`).
"""

import asyncio
import contextlib
import hmac
import logging
import os
import secrets
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.agents import agent_types
from accord.agents.agent_types import Given, Kind, Options, Seconds
from accord.agents.command_environment import command_variables, has_command
from accord.agents.command_safety import placeholder_problem
from accord.agents.messages import prompt
from accord.agents.relay import RELAYCAST, RelayA2AAdapter, conversation_id, runner
from accord.agents.relay.channel import CANCEL, RelayRequest, RelayUnavailable
from accord.agents.relay.runner import PLACEHOLDER
from accord.engine.agent import Agent, Crash, Node
from accord.engine.context import Context, Failed

if TYPE_CHECKING:
    from aiohttp import web


PATH = "/channels/messages"

MAX_MESSAGES = 1000
"""Maximum number of messages in a channel, far more than one request reads."""

MAX_CHANNELS = 100
MAX_TEXT = 4 * 1024 * 1024
"""Maximum length of a message, in characters."""

MAX_BODY = MAX_TEXT * 2 + 1024
MAX_WAIT_SECONDS = 25.0
"""Maximum time that a reader may wait, in seconds; shorter than the idle timeouts of proxies."""

LATEST = 20


class BrokerPost(Struct, frozen=True, kw_only=True):
    """The body of a post."""

    channel: Annotated[str, Meta(min_length=1, max_length=200)]
    text: Annotated[str, Meta(max_length=MAX_TEXT)]


class Broker:
    """Channels, and an HTTP server for them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Accept callers with one of `keys`, which maps each key to its sender."""
        self._keys = dict(keys)
        self._channels: dict[str, deque[dict[str, Any]]] = {}
        self._count = 0
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Start listening, and return the URL."""
        from aiohttp import web

        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post(PATH, self._post)
        app.router.add_get(PATH, self._read)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        found = self._runner.addresses[0]
        return f"http://{host}:{found[1]}"

    async def stop(self) -> None:
        """Stop listening, and delete all messages."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._channels.clear()

    async def _post(self, request: "web.Request") -> "web.Response":
        sender = self._sender(request)
        if sender is None:
            return _answer({"error": "no such key"}, 401)
        try:
            posted = msgspec.json.decode(await request.read(), type=BrokerPost)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _answer({"error": str(error)}, 400)
        if posted.channel not in self._channels and len(self._channels) >= MAX_CHANNELS:
            return _answer({"error": "too many channels"}, 429)
        async with self._news:
            self._count += 1
            message = {
                "id": self._count,
                "channel": posted.channel,
                "from": sender,
                "text": posted.text,
                "created_at": datetime.now(UTC).isoformat(),
            }
            self._channels.setdefault(posted.channel, deque(maxlen=MAX_MESSAGES)).append(message)
            self._news.notify_all()
        return _answer(message, 201)

    async def _read(self, request: "web.Request") -> "web.Response":
        if self._sender(request) is None:
            return _answer({"error": "no such key"}, 401)
        asked = request.query
        try:
            limit, after = int(asked.get("limit", LATEST)), int(asked.get("after", 0))
            wait = min(float(asked.get("wait", 0)), MAX_WAIT_SECONDS)
        except ValueError:
            return _answer({"error": "limit, after and wait are numbers"}, 400)
        name = asked.get("channel", "")

        def found() -> list[dict[str, Any]]:
            new = [message for message in self._channels.get(name, ()) if message["id"] > after]
            # With `after` a reader gets the next messages, without it the latest.
            return new[: max(1, limit)] if after else new[-max(1, limit) :]

        if wait > 0 and not found():
            try:
                async with asyncio.timeout(wait), self._news:
                    await self._news.wait_for(lambda: bool(found()))
            except TimeoutError:
                pass
        return _answer(found(), 200)

    def _sender(self, request: "web.Request") -> str | None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = key.strip().encode()
        known = [name for one, name in self._keys.items() if hmac.compare_digest(one.encode(), given)]
        return known[0] if known else None


def _answer(value: Any, status: int) -> "web.Response":
    from aiohttp import web

    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


POLL_SECONDS = 0.2
"""Interval of reads, in seconds; the channel is on this machine."""

SENDER = "a2a"
"""Sender name of Accord's own messages."""

AGAIN_SECONDS, MOST_SECONDS = 1.0, 30.0
"""Delay before an agent that ended is restarted, doubled each time up to the maximum."""

STOP_SECONDS = 5.0
CANCEL_SECONDS = 2.0

log = logging.getLogger("accord.relay")


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
        self._native = native
        self._pass_env = pass_env
        self._port = broker_port
        self._broker: Broker | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self, node: Node) -> None:
        """Start the broker, and the agent."""
        self._broker = Broker({self.api_key: SENDER, self.agent_key: self.target_agent or "agent"})
        self.base_url = await self._broker.start(port=self._port)
        if self.command:
            process = await self._spawn()
            self._keeper = asyncio.create_task(self._keep(process), name=f"relay agent {self.target_agent}")

    async def stop(self) -> None:
        """Stop the agent, and the broker."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        await super().stop()
        if self._broker is not None:
            await self._broker.stop()
            self._broker = None

    async def run(self, ctx: Context) -> None:
        """Post the request and write the answer. If the execution is canceled or fails, post a CANCEL for the agent."""
        try:
            await super().run(ctx)
        except (asyncio.CancelledError, Failed):  # an agent that has already finished ignores it
            await self._take_back(ctx.task_id)
            raise

    async def _asked(self, ctx: Context) -> RelayRequest:
        """Post the request again, because an earlier one is gone with its broker."""
        return await self.ask(await self.before(prompt(ctx.message.parts), ctx.task_id, conversation_id(ctx)))

    async def _take_back(self, tag: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.relay.post(f"{CANCEL} [a2a:{tag}]")
        except (RelayUnavailable, TimeoutError) as error:
            log.warning("relay.not_stopped", extra={"task_id": tag, "reason": str(error)})

    # --- the process --------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return the variables that the agent needs to join the channel."""
        return {
            runner.BASE_URL: self.base_url,
            runner.API_KEY: self.agent_key,
            runner.CHANNEL: self.channel,
            runner.AGENT: self.target_agent or "agent",
        }

    async def _spawn(self) -> Process:
        how = ["--native"] if self._native else []
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            runner.__name__,
            *how,
            "--",
            *self.command,
            stdin=PIPE,  # a lifeline: it is closed when this process ends for any reason
            env=command_variables(os.environ, ("PYTHONPATH", *self._pass_env)) | self.environment(),
            start_new_session=True,
        )
        log.info("relay.started", extra={"agent": self.target_agent, "pid": process.pid})
        return process

    async def _keep(self, process: Process) -> None:
        """Restart the agent whenever it ends, and end it when this task is canceled."""
        delay = AGAIN_SECONDS
        try:
            while True:
                began = asyncio.get_running_loop().time()
                status = await process.wait()
                log.error("relay.ended", extra={"agent": self.target_agent, "status": status})
                if asyncio.get_running_loop().time() - began > MOST_SECONDS:
                    delay = AGAIN_SECONDS
                await asyncio.sleep(delay)
                delay = min(delay * 2, MOST_SECONDS)
                process = await self._spawn()
        finally:
            await _leave(process)


async def _leave(process: Process) -> None:
    """Wait for a runner to end its descendants and itself; kill it after `STOP_SECONDS`."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
            return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


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


def make(given: Given) -> Agent:
    """Make an agent from its options."""
    options: RelayOptions = given.options
    made = _made(options, given.env or os.environ)
    own = made.profile
    stated = agent_types.profile(given, crash=own.crash, name=own.name, description=own.description)
    made.profile = replace(
        stated, timeout=None, attempts=max(own.attempts, stated.attempts), output_modes=own.output_modes
    )
    return made


def _made(options: RelayOptions, env: Mapping[str, str]) -> RelayA2AAdapter:
    command = shlex.split(options.command) if isinstance(options.command, str) else list(options.command)
    timeout = options.timeout or 300.0
    if wrong := placeholder_problem(command, PLACEHOLDER, is_allowed=options.allow_interpreter):
        raise ValueError(f"command: {wrong}")
    if command and not options.installed_later and not has_command(command[0], env, os.curdir):
        raise ValueError(
            f"command: there is no {command[0]} on this machine: install it, say where it is, or say"
            " installed_later = true"
        )
    if command:
        return LocalRelay(
            command,
            native=options.native,
            channel=options.channel,
            target_agent=options.target_agent or "Worker1",
            poll_interval=options.poll_interval or POLL_SECONDS,
            timeout=timeout,
            pass_env=options.pass_env,
        )
    if not options.relay_api_key:
        raise ValueError(
            "relay_api_key: A channel needs the key of its relay, or a command to answer in one of our own"
        )
    return RelayA2AAdapter(
        options.relay_api_key,
        options.channel,
        options.target_agent,
        options.base_url,
        options.poll_interval or 2.0,
        timeout,
    )


KIND = Kind(name="relay", options=RelayOptions, make=make)
