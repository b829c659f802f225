"""Connection options, connecting to an agent, and running a command's work with its client.

An agent is a URL, a file with a card, a bare host, or a name in the registry. A command is a function of
`ConnectionOptions`, its operands and its own flags; `with_connection_options` adds the shared ones. An interrupted wait
prints how to continue it.
"""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import unquote, urlsplit

import typer

from accord.cli import ORDER
from accord.cli.failures import CommandError, Exit, ExplainedFailure, explain_failure, shell_command
from accord.cli.tables import OutputFormat, OutputOption
from accord.lazy import deferred

if TYPE_CHECKING:
    import ssl

    from accord.cli.agent_output import Progress
    from accord.client import Client
    from accord.client.credentials import Credential
    from accord.model import AgentCard, Event


UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "http+json": "HTTP+JSON", "grpc": "GRPC"}
"""Binding names for users -> binding names in cards."""

AGENT_HELP = "Agent: URL, card URL, card file or registry name. Omit with -a."


class ConnectionOptions(NamedTuple):
    """An agent, how to call it, and how to print its answers.

    `named` are the flags that select the same agent in another command, without secrets. `order` are the names of all
    flags in their given order.
    """

    agent: str = ""
    named: tuple[str, ...] = ()
    output: OutputFormat = OutputFormat.TEXT
    bearer: str | None = None
    api_key: str | None = None
    service: str | None = None
    registry: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float | None = None
    dialect: str | None = None
    binding: str | None = None
    insecure: bool = False
    trusted_hosts: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def is_json(self) -> bool:
        """Whether the output is JSON."""
        return self.output is OutputFormat.JSON

    def check(self, *, quiet: bool) -> None:
        """Refuse options that exclude each other."""
        if quiet and self.is_json:
            raise typer.BadParameter("--quiet and -o json exclude each other", param_hint="--quiet")

    def shell_command(self, does: str, *operands: str) -> str:
        """Return a command about the same agent, for copying."""
        return shell_command(*does.split(), *map(_without_secrets, self.named), *operands)


def _without_secrets(word: str) -> str:
    """Return an argument without the secrets of a URL: its password and the values of its query."""
    address, has_query, query = word.partition("?")
    scheme, has_scheme, rest = address.partition("://")
    if not has_scheme:
        return word
    user, has_user, host = rest.rpartition("@")
    kept = f"{user.partition(':')[0]}{has_user}{host}"
    names = "&".join(f"{pair.partition('=')[0]}=..." for pair in query.split("&")) if has_query else ""
    return f"{scheme}://{kept}{has_query}{names}"


def _shared_options(  # size: one parameter for each flag
    ctx: typer.Context,
    agent_card: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--agent-card",
            metavar="AGENT",
            envvar="ACCORD_AGENT_CARD",
            help="Agent, instead of the first argument.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TEXT,
    bearer: Annotated[str | None, typer.Option(metavar="TOKEN", envvar="ACCORD_BEARER", help="Bearer token.")] = None,
    api_key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="ACCORD_API_KEY", help="API key, sent as the card declares.")
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of the registry for names, or `store` for the store's own.",
            show_default="$ACCORD_REGISTRY_URL, else the store's own",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Id of the stored credential.", show_default="from the card and the host"),
    ] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME:VALUE", help="HTTP header (repeatable).")] = None,
    svc_param: Annotated[
        list[str] | None, typer.Option(metavar="NAME:VALUE", help="A2A service parameter (repeatable).")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Timeout of the command, e.g. 90s, 15m or 2h.",
            show_default="60s for a response, none for a task",
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Dialect: v1, v03, vault, gen or relay.", show_default="from the card"),
    ] = None,
    binding: Annotated[
        str | None,
        typer.Option(
            "--binding",
            "--transport",
            metavar="NAME",
            help="Binding: jsonrpc, rest or grpc.",
            show_default="from the card",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Skip certificate verification (development only).")
    ] = False,
    trust_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Host that the card may refer to, although another host served the card (repeatable).",
        ),
    ] = None,
) -> ConnectionOptions:
    """Return the shared flags, with an agent only if a flag or variable names it."""
    is_flag = agent_card is not None and getattr(ctx.get_parameter_source("agent_card"), "name", "") != "ENVIRONMENT"
    named = [
        ("-a", agent_card if is_flag else None),
        ("--registry", registry),
        ("--service", service),
        ("--dialect", dialect),
        ("--binding", binding),
        *(("--trust-host", host) for host in trust_host or ()),
    ]
    return ConnectionOptions(
        agent=agent_card or "",
        named=tuple(word for flag, value in named if value for word in (flag, value)),
        output=output,
        bearer=bearer,
        api_key=api_key,
        service=service,
        registry=registry,
        headers=tuple(map(parse_pair, [*(header or ()), *(svc_param or ())])),
        seconds=None if timeout is None else parse_seconds(timeout),
        dialect=None if dialect is None else parse_dialect(dialect),
        binding=None if binding is None else parse_binding(binding),
        insecure=insecure,
        trusted_hosts=tuple(trust_host or ()),
        order=tuple(ctx.meta.get(ORDER, ())),
    )


def with_connection_options(*operands: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the shared flags, an optional agent as its first argument, and these operands.

    Their names are as in the help. A last one in brackets is optional.
    """

    def decorate(work: Callable[..., None]) -> Callable[..., None]:
        shared = inspect.signature(_shared_options).parameters
        given = inspect.signature(work).parameters.values()
        own = [parameter for parameter in given if parameter.default is not parameter.empty]
        metavar = " ".join(["[AGENT]", *operands])
        words = inspect.Parameter(
            "words",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[list[str] | None, typer.Argument(metavar=metavar, help=AGENT_HELP)],
        )

        def wrapped(*, words: list[str] | None = None, **given: Any) -> None:
            options = _shared_options(**{name: given.pop(name) for name in shared})
            options, values = _split(options, words or [], operands)
            work(options, *values, **given)

        wrapped.__name__, wrapped.__doc__ = work.__name__, work.__doc__
        every = [words, *own, *shared.values()]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
        wrapped.__annotations__ = {}
        return wrapped

    return decorate


def _split(
    options: ConnectionOptions, words: list[str], operands: tuple[str, ...]
) -> tuple[ConnectionOptions, list[str | None]]:
    """Separate the agent from the operands.

    It comes first, unless a flag names it, or a variable does and none is missing.
    """
    least = sum(not name.startswith("[") for name in operands)
    is_flag = "-a" in options.named
    if not is_flag and (not options.agent or len(words) > len(operands)):
        if not words or not words[0].strip():
            raise typer.BadParameter("Missing agent: URL, card file or registry name", param_hint="AGENT")
        options = options._replace(agent=words[0], named=("-a", words[0], *options.named))
        words = words[1:]
    if len(words) < least:
        raise typer.BadParameter("Missing argument", param_hint=operands[len(words)])
    if len(words) > len(operands):
        raise typer.BadParameter(f"Unexpected argument {words[len(operands)]!r}. Quote text that contains spaces")
    return options, [*words, *[None] * (len(operands) - len(words))]


# --- parsing of values ------------------------------------------------------------------------------------------------


def parse_seconds(text: str) -> float:
    """Parse a duration such as 90, 90s, 1.5m or 2h."""
    number = text.rstrip("msh")
    try:
        found = float(number) * UNITS[text[len(number) :]]
    except (KeyError, ValueError):
        raise typer.BadParameter(
            f"{text!r} is not a valid duration (expected e.g. 90s, 15m, 2h)", param_hint="--timeout"
        ) from None
    if not 0 < found < 10**9:
        raise typer.BadParameter(
            f"{text!r} is out of range (must be above 0 and below 10^9 seconds)", param_hint="--timeout"
        )
    return found


def parse_pair(text: str) -> tuple[str, str]:
    """Parse a header, or a service parameter, which HTTP sends as a header."""
    name, sign, value = (part.strip() for part in text.partition(":"))
    if not sign or not name.isascii() or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise typer.BadParameter("The header must be NAME:VALUE")  # without the text, which may contain a secret
    if not value.isprintable():
        raise typer.BadParameter(f"The value of {name} contains control characters")
    return name, value


def parse_dialect(text: str) -> str:
    """Parse the name of a dialect."""
    from accord.protocol.operations import DialectName

    known = [name.value for name in DialectName]
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(known)}", param_hint="--dialect")
    return text.lower()


def parse_binding(text: str) -> str:
    """Parse the name of a binding."""
    if text.lower() not in BINDINGS:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(BINDINGS)}", param_hint="--binding")
    return BINDINGS[text.lower()]


# --- connecting -------------------------------------------------------------------------------------------------------


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
async def connect_client(options: ConnectionOptions, *, is_anonymous: bool = False) -> AsyncIterator["Client"]:
    """Connect to the agent. Anonymously, only its card may be read if it requires authentication."""
    path = _card_file(options.agent)
    arguments = _client_options(options, is_anonymous=is_anonymous)
    client = await _connect(options, options.agent if path is None else _read_card(path), arguments)
    try:
        yield client
    finally:
        await client.close()


async def _connect(options: ConnectionOptions, target: "str | AgentCard", arguments: dict[str, Any]) -> "Client":
    from accord.client import Client
    from accord.client.auth import NoCredentials

    try:
        return await Client.connect(target, **arguments)
    except NoCredentials:
        if not options.headers:
            raise
    return await Client.connect(target, **{**arguments, "keys": None})  # the user's own headers may be enough


def _client_options(options: ConnectionOptions, *, is_anonymous: bool) -> dict[str, Any]:
    from accord.cli.credential_places import user_keys
    from accord.client.auth import Bearer

    arguments: dict[str, Any] = {
        "headers": dict(options.headers),
        "dialect": options.dialect,
        "binding": options.binding,
        "service": options.service,
        "allow_hosts": options.trusted_hosts,
        "resolve": partial(deferred("accord.server.registry:resolve_name"), registry=options.registry),
    }
    if options.seconds is not None:
        arguments["timeout"] = options.seconds
    if options.insecure:
        arguments["tls"] = _unverified()
    if options.bearer is not None:
        arguments["auth"] = Bearer(options.bearer)
    elif not is_anonymous:
        arguments["keys"] = user_keys(None) if options.api_key is None else GivenKey(options.api_key)
    return arguments


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
    options: ConnectionOptions, work: Work, awaited: AwaitedTask | None = None, *, is_anonymous: bool = False
) -> None:
    """Run the work with a client, and exit. `awaited` is for work that waits for a task."""
    import asyncio

    warn(options)
    try:
        asyncio.run(_run_work(options, work, is_anonymous=is_anonymous))
    except KeyboardInterrupt:
        _interrupted(options, awaited)
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        raise  # the reader closed the pipe; typer exits quietly
    except Exception as error:
        failure = explain_failure(error)
        if failure is None:
            raise
        lost = getattr(error, "task_id", None)  # of a message whose answer was lost
        report_failure(
            options, _with_resume_hint(options, lost or (None if awaited is None else awaited.task_id), failure)
        )
        raise typer.Exit(failure.exit) from None


async def _run_work(options: ConnectionOptions, work: Work, *, is_anonymous: bool) -> None:
    from asyncio import timeout

    from accord.cli.agent_output import Progress

    try:
        with Progress("connecting") as progress:
            async with timeout(options.seconds), connect_client(options, is_anonymous=is_anonymous) as client:
                progress.show("waiting")
                await work(client, progress)
    except TimeoutError:
        if options.seconds is None:
            raise
        raise TimeoutError(f"The command timed out after {options.seconds:g} seconds") from None


def warn(options: ConnectionOptions) -> None:
    """Print warnings about dangerous options, before any output or request."""
    from accord.cli import agent_output

    if options.insecure:
        agent_output.notice(
            "accord: certificates are not verified: an attacker on the network can read all traffic and credentials"
        )


def report_failure(options: ConnectionOptions, failure: ExplainedFailure) -> None:
    """Report a failure: as JSON on standard output for programs, and as text for people."""
    from accord.cli import agent_output

    if options.is_json:
        agent_output.write(agent_output.compact(failure.document()) + "\n")
    agent_output.notice(f"accord: {agent_output.line(failure.message)}")
    if failure.hint:
        agent_output.notice(failure.hint)


def _with_resume_hint(options: ConnectionOptions, task_id: str | None, failure: ExplainedFailure) -> ExplainedFailure:
    """Add a hint how to resume waiting for the task, if the agent did not fail."""
    if task_id is None or failure.exit not in (Exit.TIMED_OUT, Exit.UNREACHABLE):
        return failure
    return failure._replace(hint=f"To wait for the task again: {options.shell_command('task get --wait', task_id)}")


def _interrupted(options: ConnectionOptions, awaited: AwaitedTask | None) -> None:
    from accord.cli import agent_output

    if awaited is None or awaited.task_id is None:
        agent_output.notice("\naccord: interrupted" + (" before the agent returned a task id" if awaited else ""))
        return
    agent_output.notice(f"\nTask {agent_output.line(awaited.task_id)} is still running.")
    agent_output.notice(f"  subscribe  {options.shell_command('task subscribe', awaited.task_id)}")
    agent_output.notice(f"  cancel     {options.shell_command('task cancel', awaited.task_id)}")
