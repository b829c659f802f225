"""The panel that `accord serve` shows on startup: URLs and a first request.

It is written to standard error, or to the log if logs are JSON. It is drawn without rich, which takes a third of the
server's start-up time to import.
"""

import logging
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from accord import __version__
from accord.api import Agent, AgentWithMembers
from accord.api.access import AnyScheme, ApiKeys, Basic, Header, Hmac, Jwt, Mtls, Plugin
from accord.api.administration import SqliteAddress
from accord.console import PAGES
from accord.protocol import http_headers
from accord.protocol.operations import DialectName
from accord.server.settings import LogFormat, Settings
from accord.telemetry.logs import SERVER_LOGGER

if TYPE_CHECKING:
    from accord.server.application import Application


FIRST_MESSAGE = "hello accord"

MESSAGES = {
    DialectName.V1: (
        "SendMessage",
        """{"message":{"messageId":"%(id)s","role":"ROLE_USER","parts":[{"text":"%(text)s"}]}}""",
    ),
    DialectName.V03: (
        "message/send",
        """{"message":{"kind":"message","messageId":"%(id)s","role":"user","""
        """"parts":[{"kind":"text","text":"%(text)s"}]}}""",
    ),
    DialectName.RELAY: (
        "message/send",
        """{"message":{"messageId":"%(id)s","role":"user","parts":[{"type":"text","text":"%(text)s"}]}}""",
    ),
    DialectName.GEN: (
        "message/send",
        """{"message":{"id":"%(id)s","parts":[{"type":"text","content":"%(text)s"}]}}""",
    ),
    DialectName.VAULT: (
        "tasks/send",
        """{"message":{"role":"user","parts":[{"type":"text","content":"%(text)s"}]}}""",
    ),
}
"""Method and parameters of a first message in each dialect, the newest first."""

NOW = "'$(date +%s)'"
"""An id that changes each second: sending the same message twice returns the same task."""

SIGNED = (
    "(%(key)sT=$(date +%%s); N=$(openssl rand -hex 8); BODY='%(body)s'; "
    """V=$(printf '%%s.%%s\\nPOST %%s\\n%%s' "$T" "$N" %(target)s "$BODY" """
    """| openssl dgst -sha256 -hmac "$SECRET" | sed 's/.* //'); """
    """%(curl)s -d "$BODY")"""
)
"""Shell commands that sign a request (`protocol.http_headers`) in a subshell, so that its variables do not remain."""


log = logging.getLogger(SERVER_LOGGER)


@contextmanager
def announce_server(application: "Application", *, shows: bool = True) -> Iterator[Callable[[], None]]:
    """Yield a function that announces the server. If it was called, the stop is logged as well.

    The panel is printed unless logs are JSON.
    """
    said = False

    def say() -> None:
        nonlocal said
        said = True
        log.info("server.started", extra=_startup_record(application))
        if shows and application.settings.telemetry.log_format is not LogFormat.JSON:
            print_panel(application)

    try:
        yield say
    finally:
        if said:
            log.info("server.stopped", extra={"url": application.url})


def _startup_record(application: "Application") -> dict[str, Any]:
    """Return the fields of the startup log record."""
    settings = application.settings
    return {
        "version": __version__,
        "url": application.url,
        "host": settings.server.host,
        "port": settings.server.port,
        "grpc_port": settings.server.grpc_port,
        "console": f"{application.url}{PAGES}" if settings.console.enabled else None,
        "store": "sqlite" if isinstance(application.address, SqliteAddress) else "postgresql",
        "agents": list(application.agents),
        "workers": settings.server.workers,
    }


def print_panel(application: "Application") -> None:
    """Print the panel."""
    url, settings = application.url, application.settings
    rows = [
        ("", ", ".join(agent.profile.name for agent in application.agents.values())),
        *((("console", f"{url}{PAGES}"),) if settings.console.enabled else ()),
        ("agent", f"{url}/"),
        *((("listens", _listens(settings)),) if settings.server.url else ()),
        ("card", f"{url}/.well-known/agent-card.json"),
        *((("agents", f"{url}/agents/{name}/") for name in application.agents) if len(application.agents) > 1 else ()),
        *(row for name, agent in application.agents.items() for row in _workflow(f"{url}/hooks/{name}/", agent)),
        *((("grpc", f"port {settings.server.grpc_port}"),) if settings.server.grpc_port else ()),
        ("dialects", ", ".join(name.value for name in settings.server.dialects)),
        ("store", str(application.address)),
        ("auth", authentication_text(settings)),
    ]
    lines = [f"{label:<9}{value}" if label else value for label, value in rows]
    print(
        _draw_box(lines, f"accord {__version__}"),
        "Try it:",
        curl_command(url, settings),
        sep="\n",
        file=sys.stderr,
        flush=True,
    )


def _listens(settings: Settings) -> str:
    """Return the listening address, if it differs from the public URL."""
    host = settings.server.host
    return f"{f'[{host}]' if ':' in host else host}:{settings.server.port}"


def _workflow(hooks: str, agent: Agent) -> Iterator[tuple[str, str]]:
    """Yield the rows of a workflow agent: its workflows, schedules and webhooks."""
    if not isinstance(agent, AgentWithMembers):
        return
    from accord.server.workflow_triggers import flow_of

    flow = flow_of(agent)
    if flow is None:
        return
    names = ", ".join(one.name for one in flow.document.workflows)
    members = len(flow.members)
    crew = f" ({members} member{'s' * (members != 1)})" if members else ""  # its steps may all be commands
    yield "workflow", f"{agent.profile.name}: {names or 'its agents'}{crew}"
    on = flow.document.on
    for schedule in on.schedule if on is not None else ():
        yield "schedule", f"{schedule.cron} {schedule.timezone}"
    for hook in on.webhook if on is not None else ():
        yield "webhook", f"POST {hooks}{hook.path.strip('/')}{' (signed)' if hook.secret else ''}"


def authentication_text(settings: Settings) -> str:
    """Return the enabled authentication schemes as text."""
    schemes: list[Any] = list(settings.auth.schemes)
    if schemes:
        return ", ".join(one.name if isinstance(one, Plugin) else str(one.__struct_config__.tag) for one in schemes)
    return "none: loopback only"


def curl_command(url: str, settings: Settings) -> str:
    """Return a command that sends a first message."""
    server = settings.server
    dialect = next(name for name in MESSAGES if name in server.dialects)
    method, params = MESSAGES[dialect]
    version = " -H 'A2A-Version: 1.0'" if dialect is DialectName.V1 else ""
    scheme = settings.auth.schemes[0] if settings.auth.schemes else None
    said = params % {"id": "'$T'" if isinstance(scheme, Hmac) else NOW, "text": FIRST_MESSAGE}
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{said}}}'
    # The server's own file verifies any certificate, regardless of its issuer.
    trust = f" --cacert {shlex.quote(server.tls_cert)}" if server.tls_cert and not server.url else ""
    who = _credentials(scheme) if scheme else ""
    line = f"curl -sS {shlex.quote(url)}/{trust}{who} -H 'Content-Type: application/json'{version}"
    return _signed(scheme, url, body, line) if isinstance(scheme, Hmac) else f"{line} -d '{body}'"


def _signed(scheme: Hmac, url: str, body: str, line: str) -> str:
    """Return a command that signs a body with one of the keys and sends it. A single key need not be named."""
    key = f"K={shlex.quote(next(iter(scheme.keys)))}; " if len(scheme.keys) > 1 else ""
    return SIGNED % {"key": key, "body": body, "target": shlex.quote(f"{urlsplit(url).path}/"), "curl": line}


def _credentials(scheme: AnyScheme) -> str:
    """Return curl's credential arguments, with the secret in a variable."""
    match scheme:
        case ApiKeys():
            return f' -H "{scheme.header}: $KEY"'
        case Header():
            return f' -H "{scheme.name}: $SECRET"'
        case Jwt():
            return ' -H "Authorization: Bearer $TOKEN"'
        case Basic():
            return f" -u {shlex.quote(next(iter(scheme.users), 'NAME'))}"
        case Mtls():
            return " --cert $CERTIFICATE --key $KEY" if scheme.header is None else ""
        case Hmac():
            return f' -H "{http_headers.SIGNATURE_HEADER}: t=$T,{"k=$K," if len(scheme.keys) > 1 else ""}n=$N,v1=$V"'
        case Plugin():
            return ""  # only its package can construct credentials


def _draw_box(lines: list[str], title: str) -> str:
    """Return lines in a box of characters that the terminal supports."""
    try:
        "╭─│╯".encode(sys.stderr.encoding or "ascii")
        flat, side, corners = "─", "│", ("╭", "╮", "╰", "╯")
    except UnicodeEncodeError:
        flat, side, corners = "-", "|", ("+",) * 4
    width = max(len(title) + 2, *map(len, lines))
    top = f" {title} ".center(width + 2, flat)
    inside = [f"{side} {line:<{width}} {side}" for line in lines]
    return "\n".join([corners[0] + top + corners[1], *inside, corners[2] + flat * (width + 2) + corners[3]])
