"""The kind `relay`: a channel of a relay elsewhere, or one of our own with a command behind it.

It reads options and makes the agent, which is `adapter`'s or `local`'s.
"""

import os
import shlex
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from accord.agents import kinds
from accord.agents.environment import is_there
from accord.agents.kinds import Given, Kind, Options, Seconds
from accord.agents.programs import placeholder_problem
from accord.agents.relay.adapter import RELAYCAST, RelayA2AAdapter
from accord.agents.relay.runner import PLACEHOLDER
from accord.engine.agent import Agent


class RelayOptions(Options, frozen=True, kw_only=True):
    """A channel: of the relay at `base_url`, or with a `command` of a broker that is started here with its agent.

    A command is given what is asked as its input, or where an argument says `{prompt}`; one that is `native` reads the
    channel itself; one that is not there when the server starts is a mistake, unless it is `installed_later`. A program
    that runs its arguments, such as `sh -c`, has `{prompt}` only with `allow_interpreter`. The command gets the common
    variables of the server's environment, and those in `pass_env`. `timeout` is for an answer to come.
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
    """Make an agent as its options say."""
    options: RelayOptions = given.options
    made = _made(options, given.env or os.environ)
    own = made.profile
    stated = kinds.profile(given, crash=own.crash, name=own.name, description=own.description)
    made.profile = replace(
        stated, timeout=None, attempts=max(own.attempts, stated.attempts), output_modes=own.output_modes
    )
    return made


def _made(options: RelayOptions, env: Mapping[str, str]) -> RelayA2AAdapter:
    command = shlex.split(options.command) if isinstance(options.command, str) else list(options.command)
    timeout = options.timeout or 300.0
    if wrong := placeholder_problem(command, PLACEHOLDER, is_allowed=options.allow_interpreter):
        raise ValueError(f"command: {wrong}")
    if command and not options.installed_later and not is_there(command[0], env, os.curdir):
        raise ValueError(
            f"command: there is no {command[0]} on this machine: install it, say where it is, or say"
            " installed_later = true"
        )
    if command:
        from accord.agents.relay.local import POLL_SECONDS, LocalRelay

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
