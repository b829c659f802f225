"""A relay and an agent of its own: a broker on this machine, and a process that answers in its channel.

It starts both with the node and stops both with it; if the node is killed, the process ends by itself (`runner`).
Asking and answering is the adapter's.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from msgspec.structs import replace

from accord.agents.content import prompt
from accord.agents.environment import passed
from accord.agents.relay import runner
from accord.agents.relay.adapter import RelayA2AAdapter, conversation
from accord.agents.relay.broker import Broker
from accord.agents.relay.channel import NoRelay
from accord.agents.relay.correlation import CANCEL, Asked
from accord.engine.agent import Crash, Node
from accord.engine.context import Context, Failed

POLL_SECONDS = 0.2
"""How often the channel is read: it is on this machine."""

SENDER = "a2a"
"""What the channel calls who asks."""

AGAIN_SECONDS, MOST_SECONDS = 1.0, 30.0
"""When an agent that has ended is started again, doubled each time up to the most."""

STOP_SECONDS = 5.0
CANCEL_SECONDS = 2.0

log = logging.getLogger("accord.relay")


class LocalRelay(RelayA2AAdapter):
    """The agents of a channel that is on this machine, one of which is started here, if there is a command for it."""

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
        """Start `command` as the agent `target_agent`; one that is `native` speaks to the channel itself.

        Of the server's environment it gets the common variables, and those in `pass_env`.
        """
        super().__init__(secrets.token_urlsafe(32), channel, target_agent, poll_interval=poll_interval, timeout=timeout)
        self.agent_key = secrets.token_urlsafe(32)
        self.profile = replace(self.profile, crash=Crash.RESTART)  # what was asked is gone with the broker
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
        """Ask and give the answer; who is cancelled, or waits no longer, tells the agent to stop."""
        try:
            await super().run(ctx)
        except (asyncio.CancelledError, Failed):  # one that has ended by itself does not mind
            await self._take_back(ctx.task_id)
            raise

    async def _asked(self, ctx: Context) -> Asked:
        """Ask anew: what an earlier run asked is gone with its broker."""
        return await self.ask(await self.before(prompt(ctx.message.parts), ctx.task_id, conversation(ctx)))

    async def _take_back(self, tag: str) -> None:
        try:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.relay.post(f"{CANCEL} [a2a:{tag}]")
        except (NoRelay, TimeoutError) as error:
            log.warning("relay agent was not told to stop", extra={"task_id": tag, "reason": str(error)})

    # --- the process --------------------------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Return what an agent has to know to join the channel."""
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
            stdin=PIPE,  # a lifeline: it is closed when this process ends, however that is
            env=passed(os.environ, ("PYTHONPATH", *self._pass_env)) | self.environment(),
            start_new_session=True,
        )
        log.info("relay agent started", extra={"agent": self.target_agent, "pid": process.pid})
        return process

    async def _keep(self, process: Process) -> None:
        """Start the agent again whenever it ends; when this is stopped, it is."""
        delay = AGAIN_SECONDS
        try:
            while True:
                began = asyncio.get_running_loop().time()
                status = await process.wait()
                log.error("relay agent ended: exit status %s", status, extra={"agent": self.target_agent})
                if asyncio.get_running_loop().time() - began > MOST_SECONDS:
                    delay = AGAIN_SECONDS
                await asyncio.sleep(delay)
                delay = min(delay * 2, MOST_SECONDS)
                process = await self._spawn()
        finally:
            await _leave(process)


async def _leave(process: Process) -> None:
    """Let a runner end what it has started, and itself; one that does not is killed."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
            return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
