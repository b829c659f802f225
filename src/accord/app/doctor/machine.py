"""The machine: ports, open files, what has to be installed for what the settings ask for, and packages beside us."""

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec

from msgspec import structs

from accord import plugins
from accord.app.doctor.aside import aside
from accord.app.doctor.findings import Check, Finding, Patient, failed, ok, warning
from accord.app.doctor.reach import is_up
from accord.app.server import CannotListen, listen
from accord.config.settings import HttpServer
from accord.storage.address import PostgresAddress

FILES = 4096
"""Open files of a process: a stream is one, and the limits let a caller hold a thousand."""

TAKEN = "nothing, if it is this very server; a second one cannot listen there: stop the first, or choose another port"
"""What to do where a server of accord has the port."""


def checks(patient: Patient) -> Iterator[Check]:
    """Yield what to look at."""
    server = patient.settings.server
    yield Check("port", partial(_port, server.port))
    if server.grpc_port is not None:
        yield Check("grpc port", partial(_port, server.grpc_port))
    yield Check("open files", _files)
    yield Check("extras", _extras)
    yield Check("plugins", _plugins)


async def _port(port: int, patient: Patient) -> list[Finding]:
    server = patient.settings.server
    check = "port" if port == server.port else "grpc port"
    try:
        listen(structs.replace(server, port=port)).close()
    except CannotListen as error:
        if await is_up(patient):
            return [warning(check, f"a server of accord listens on {server.host}:{port} already", TAKEN)]
        detail, _, remedy = str(error).partition(". ")
        return [failed(check, detail, remedy)]
    return [ok(check, f"{server.host}:{port} is free")]


async def _files(_: Patient) -> list[Finding]:
    try:
        import resource
    except ImportError:
        return []  # there is no such limit on this system
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = "any number" if most == resource.RLIM_INFINITY else str(most)
    if most != resource.RLIM_INFINITY and most < FILES:
        remedy = f"raise the limit: ulimit -n {16 * FILES}, or LimitNOFILE= in a systemd unit"
        return [warning("open files", f"{told} at a time, and each stream is one", remedy)]
    return [ok("open files", f"{told} at a time")]


async def _extras(patient: Patient) -> list[Finding]:
    """Say what is asked for and not installed; what agents need is said with them."""
    server, address = patient.settings.server, patient.address
    schemes = {one.partition("://")[0] for one in address.signals} if isinstance(address, PostgresAddress) else set()
    asked_for = {
        "granian": (server.server is HttpServer.GRANIAN, ("granian",)),
        "grpc": (server.grpc_port is not None, ("grpc", "a2a")),
        "nats": (bool(schemes & {"nats", "tls"}), ("nats",)),
        "otel": (patient.settings.telemetry.traces is True, ("opentelemetry.sdk",)),
    }
    wanted = {extra: modules for extra, (is_asked_for, modules) in asked_for.items() if is_asked_for}
    missing = [extra for extra, modules in wanted.items() if not all(map(_is_installed, modules))]
    if not missing:
        return [ok("extras", f"{', '.join(wanted)} installed")] if wanted else []
    return [failed("extras", f"{extra} is not installed", f"pip install 'accord[{extra}]'") for extra in missing]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # not even what it would be part of


async def _plugins(_: Patient) -> list[Finding]:
    """Say which packages have registered something, and what cannot be used of it."""
    found = await aside(partial(plugins.listed, check=True))
    broken = [one for one in found if one.problem is not None]
    if not broken:
        return [ok("plugins", ", ".join(f"{one.name} ({one.package} {one.version})" for one in found))] if found else []
    return [warning("plugins", one.problem or "", f"mend it, or pip uninstall {one.package}") for one in broken]
