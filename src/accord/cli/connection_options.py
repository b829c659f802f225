"""Connection options: the flags that select an agent and how to call it.

A command is a function of `ConnectionOptions`, its operands and its own flags. `with_connection_options` adds the
shared ones.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from accord.cli import ORDER
from accord.cli.failures import shell_command
from accord.cli.tables import OutputFormat

PANEL = "Which agent, and how"
"""Heading of the shared flags in `--help`."""

UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

BINDINGS = {"jsonrpc": "JSONRPC", "rest": "HTTP+JSON", "http+json": "HTTP+JSON", "grpc": "GRPC"}
"""Binding names for users -> binding names in cards."""

AGENT_HELP = "AGENT, if -a does not name it: its address, the address or file of its card, or its name."


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
            raise typer.BadParameter("It prints text, and -o json wants JSON", param_hint="--quiet")

    def again(self, does: str, *operands: str) -> str:
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
            rich_help_panel=PANEL,
            help="The agent, if it is not the first argument.",
        ),
    ] = None,
    output: Annotated[
        OutputFormat, typer.Option("-o", "--output", rich_help_panel=PANEL, help="How it is printed.")
    ] = (OutputFormat.TEXT),
    bearer: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", envvar="ACCORD_BEARER", rich_help_panel=PANEL, help="A bearer token."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", envvar="ACCORD_API_KEY", rich_help_panel=PANEL, help="A key, sent where the card wants it."
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            rich_help_panel=PANEL,
            help="Where names are looked up, or `store` for the store's own registry.",
            show_default="$ACCORD_REGISTRY_URL, else the store's own",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            rich_help_panel=PANEL,
            help="The stored credentials to use.",
            show_default="by the card and the host",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", rich_help_panel=PANEL, help="An HTTP header; may be repeated."),
    ] = None,
    svc_param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:VALUE", rich_help_panel=PANEL, help="A service parameter of A2A; may be repeated."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=PANEL,
            help="How long to wait for all of it: 90s, 15m, 2h.",
            show_default="60s for an answer, none for a task",
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", rich_help_panel=PANEL, help="v1, v03, vault, gen or relay.", show_default="by the card"
        ),
    ] = None,
    binding: Annotated[
        str | None,
        typer.Option(
            "--binding",
            "--transport",
            metavar="NAME",
            rich_help_panel=PANEL,
            help="jsonrpc, rest or grpc.",
            show_default="by the card",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", rich_help_panel=PANEL, help="Verify no certificates: development only.")
    ] = False,
    trust_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            rich_help_panel=PANEL,
            help="A host that the card may lead to though another one served it: it is then called; may be repeated.",
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
            reach = _shared_options(**{name: given.pop(name) for name in shared})
            reach, values = _split(reach, words or [], operands)
            work(reach, *values, **given)

        wrapped.__name__, wrapped.__doc__ = work.__name__, work.__doc__
        every = [words, *own, *shared.values()]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
        wrapped.__annotations__ = {}
        return wrapped

    return decorate


def _split(
    reach: ConnectionOptions, words: list[str], operands: tuple[str, ...]
) -> tuple[ConnectionOptions, list[str | None]]:
    """Separate the agent from the operands.

    It comes first, unless a flag names it, or a variable does and none is missing.
    """
    least = sum(not name.startswith("[") for name in operands)
    is_flag = "-a" in reach.named
    if not is_flag and (not reach.agent or len(words) > len(operands)):
        if not words or not words[0].strip():
            raise typer.BadParameter("Name the agent: its address, its card's file, or its name", param_hint="AGENT")
        reach = reach._replace(agent=words[0], named=("-a", words[0], *reach.named))
        words = words[1:]
    if len(words) < least:
        raise typer.BadParameter("It is missing", param_hint=operands[len(words)])
    if len(words) > len(operands):
        raise typer.BadParameter(f"What is {words[len(operands)]!r}? Quote a text of several words")
    return reach, [*words, *[None] * (len(operands) - len(words))]


# --- parsing of values ------------------------------------------------------------------------------------------------


def parse_seconds(text: str) -> float:
    """Parse a duration such as 90, 90s, 1.5m or 2h."""
    number = text.rstrip("msh")
    try:
        found = float(number) * UNITS[text[len(number) :]]
    except (KeyError, ValueError):
        raise typer.BadParameter(f"{text!r} is no time: write 90s, 15m or 2h", param_hint="--timeout") from None
    if not 0 < found < 10**9:
        raise typer.BadParameter(f"{text!r} cannot be waited", param_hint="--timeout")
    return found


def parse_pair(text: str) -> tuple[str, str]:
    """Parse a header, or a service parameter, which HTTP sends as a header."""
    name, sign, value = (part.strip() for part in text.partition(":"))
    if not sign or not name.isascii() or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise typer.BadParameter("Write a header as name:value")  # without the text, which may contain a secret
    if not value.isprintable():
        raise typer.BadParameter(f"The value of {name} has control characters")
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
