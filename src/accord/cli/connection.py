"""Connect to an agent, run a command's work, and exit.

An agent is a URL, a file with a card, a bare host, or a name in the registry. An interrupted wait prints how to
continue it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import typer

from accord.cli.connection_options import ConnectionOptions
from accord.cli.failures import CommandError, Exit, ExplainedFailure, explain_failure

if TYPE_CHECKING:
    import ssl

    from accord.cli.agent_output import Progress
    from accord.client import Client
    from accord.client.credentials import Credential
    from accord.model import AgentCard, Event


class GivenKey:
    """The user's key, returned for any id."""

    def __init__(self, key: str) -> None:
        """Keep the key."""
        self._key = key

    def find(self, id: str) -> "Credential | None":
        """Return the key."""
        from accord.client.credentials import Credential

        return Credential(api_key=self._key)


@asynccontextmanager
async def connect_client(reach: ConnectionOptions, *, is_anonymous: bool = False) -> AsyncIterator["Client"]:
    """Connect to the agent. Anonymously, only its card may be read if it requires authentication."""
    path = _card_file(reach.agent)
    options = _client_options(reach, is_anonymous=is_anonymous)
    client = await _connect(reach, reach.agent if path is None else _read_card(path), options)
    try:
        yield client
    finally:
        await client.close()


async def _connect(reach: ConnectionOptions, target: "str | AgentCard", options: dict[str, Any]) -> "Client":
    from accord.client import Client
    from accord.client.auth import NoCredentials

    try:
        return await Client.connect(target, **options)
    except NoCredentials:
        if not reach.headers:
            raise
    return await Client.connect(target, **{**options, "keys": None})  # the user's own headers may be enough


def _client_options(reach: ConnectionOptions, *, is_anonymous: bool) -> dict[str, Any]:
    from accord.cli.credential_places import user_keys
    from accord.client.auth import Bearer

    options: dict[str, Any] = {
        "headers": dict(reach.headers),
        "dialect": reach.dialect,
        "binding": reach.binding,
        "service": reach.service,
        "allow_hosts": reach.trusted_hosts,
        "resolve": partial(_resolved, reach.registry),
    }
    if reach.seconds is not None:
        options["timeout"] = reach.seconds
    if reach.insecure:
        options["tls"] = _unverified()
    if reach.bearer is not None:
        options["auth"] = Bearer(reach.bearer)
    elif not is_anonymous:
        options["keys"] = user_keys(None) if reach.api_key is None else GivenKey(reach.api_key)
    return options


async def _resolved(registry: str | None, name: str) -> "AgentCard":
    """Look up a name. The registry modules are loaded only for this."""
    from accord.server.registry import resolve_name

    return await resolve_name(name, registry=registry)


def _unverified() -> "ssl.SSLContext":
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _card_file(agent: str) -> Path | None:
    """Return the file that the argument names: it begins like a path or exists."""
    path = Path(unquote(urlsplit(agent).path) if agent.startswith("file://") else agent).expanduser()
    return path if agent.startswith(("file://", "/", ".", "~")) or path.is_file() else None


def _read_card(path: Path) -> "AgentCard":
    from accord.errors import AccordError
    from accord.protocol.cards import decode_card

    try:
        return decode_card(path.read_bytes())
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        raise CommandError(ExplainedFailure(Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND", why)) from None
    except AccordError as error:
        why = f"{path} is not an agent card: {error.message}"
        raise CommandError(ExplainedFailure(Exit.FAILED, "A2ACLI_ERR_CARD_INVALID", why)) from None


Work = Callable[["Client", "Progress"], Awaitable[None]]
"""A command's work. Progress is shown until it prints."""


class AwaitedTask:
    """The id of a task that a command waits for."""

    def __init__(self, task_id: str | None = None) -> None:
        """Start with the user's task id, if any."""
        self.task_id = task_id

    def event(self, event: "Event") -> None:
        """Keep the task's id."""
        from accord.model import Message, Task

        body = event.body
        self.task_id = (
            body.id if isinstance(body, Task) else self.task_id if isinstance(body, Message) else body.task_id
        )


def run_with_client(
    reach: ConnectionOptions, work: Work, seen: AwaitedTask | None = None, *, is_anonymous: bool = False
) -> None:
    """Run the work with a client, and exit. `seen` is for work that waits for a task."""
    import asyncio

    warn(reach)
    try:
        asyncio.run(_run_work(reach, work, is_anonymous=is_anonymous))
    except KeyboardInterrupt:
        _interrupted(reach, seen)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        raise  # the reader closed the pipe; typer exits quietly
    except Exception as error:
        failure = explain_failure(error)
        if failure is None:
            raise
        lost = getattr(error, "task_id", None)  # of a message whose answer was lost
        report_failure(reach, _with_resume_hint(reach, lost or (None if seen is None else seen.task_id), failure))
        raise typer.Exit(failure.exit) from None


async def _run_work(reach: ConnectionOptions, work: Work, *, is_anonymous: bool) -> None:
    from asyncio import timeout

    from accord.cli.agent_output import Progress

    try:
        with Progress("connecting") as progress:
            async with timeout(reach.seconds), connect_client(reach, is_anonymous=is_anonymous) as client:
                progress.say("waiting")
                await work(client, progress)
    except TimeoutError:
        if reach.seconds is None:
            raise
        raise TimeoutError(f"It took longer than {reach.seconds:g} seconds") from None


def warn(reach: ConnectionOptions) -> None:
    """Print warnings about dangerous options, before any output or request."""
    from accord.cli import agent_output

    if reach.insecure:
        agent_output.tell("accord: certificates are not verified: whoever is in between reads all, credentials too")


def report_failure(reach: ConnectionOptions, failure: ExplainedFailure) -> None:
    """Report a failure: as JSON on standard output for programs, and as text for people."""
    from accord.cli import agent_output

    if reach.is_json:
        agent_output.write(agent_output.compact(failure.document()) + "\n")
    agent_output.tell(f"accord: {agent_output.line(failure.message)}")
    if failure.hint:
        agent_output.tell(failure.hint)


def _with_resume_hint(reach: ConnectionOptions, task_id: str | None, failure: ExplainedFailure) -> ExplainedFailure:
    """Add a hint how to resume waiting for the task, if the agent did not fail."""
    if task_id is None or failure.exit not in (Exit.TIMED_OUT, Exit.UNREACHABLE):
        return failure
    return failure._replace(hint=f"To wait for it again: {reach.again('task get --wait', task_id)}")


def _interrupted(reach: ConnectionOptions, seen: AwaitedTask | None) -> None:
    from accord.cli import agent_output

    if seen is None or seen.task_id is None:
        agent_output.tell("\naccord: interrupted" + (" before the agent said which task it is" if seen else ""))
        return
    agent_output.tell(f"\nTask {agent_output.line(seen.task_id)} goes on without you.")
    agent_output.tell(f"  follow it  {reach.again('task subscribe', seen.task_id)}")
    agent_output.tell(f"  cancel it  {reach.again('task cancel', seen.task_id)}")
