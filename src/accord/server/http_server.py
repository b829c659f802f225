"""The HTTP server in front of the application: uvicorn or granian, one process or several.

It opens the port before it reports readiness, terminates TLS, closes slow connections, drains after SIGTERM and
notifies systemd. Granian (an extra) serves HTTP/2 and manages its own processes.
"""

import asyncio
import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from accord.agents.command_environment import command_variables
from accord.http.asgi import App
from accord.http.connections import Connection, connection_class
from accord.protocol.urls import Network, parse_networks
from accord.server.application import Application
from accord.server.settings import HttpServer, LogFormat, ServerSettings, Settings
from accord.server.settings_loader import BadSettings

SYSTEMD_VARIABLE, SYSTEMD_READY = "NOTIFY_SOCKET", b"READY=1"

log = logging.getLogger("accord.systemd")


def notify_systemd() -> None:
    """Notify systemd that the server is ready. A failure is only logged."""
    address = os.environ.get(SYSTEMD_VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        try:
            systemd.sendto(
                SYSTEMD_READY, f"\0{address[1:]}" if address.startswith("@") else address
            )  # @ is an abstract socket
        except OSError as error:
            log.warning("server.systemd_not_told", extra={"reason": str(error)})


def drain_on_signals(application: Application) -> None:
    """Make the server unready on SIGTERM, and stop it `drain_seconds` later. A second SIGTERM stops it now.

    SIGINT stops it at once, since an operator waits. Work in progress then has the grace period.
    """
    for number, seconds in ((signal.SIGTERM, application.settings.server.drain_seconds), (signal.SIGINT, 0.0)):
        _handle_signal(number, seconds, application)


def _handle_signal(number: signal.Signals, seconds: float, application: Application) -> None:
    before = signal.getsignal(number)
    if not callable(before):
        return
    loop = asyncio.get_running_loop()

    def stop() -> None:
        application.finish()
        before(number, None)

    def leave(_number: int, _frame: Any) -> None:
        delay = 0.0 if application.is_leaving else seconds
        application.leave()
        loop.call_soon_threadsafe(loop.call_later, delay, stop)  # a signal interrupts the loop

    signal.signal(number, leave)


GRANIAN_KILL_SECONDS = 15
"""Seconds for its processes to stop, beyond the drain and grace periods."""

LISTENING_POLL_SECONDS = 0.05
"""Seconds between two polls of the port."""


class WatchedFiles(NamedTuple):
    """Folders and file names that are watched for changes."""

    folders: list[str]
    names: list[str]


def run_granian(
    settings: Settings, worker: str, address: str, on_listen: Callable[[], None], watched: WatchedFiles | None
) -> None:
    """Serve the application that the function `worker` returns, in processes that are replaced when they end."""
    try:
        from granian import Granian
        from granian.constants import HTTPModes, Interfaces
        from granian.log import LogLevels
    except ImportError:
        raise BadSettings("server.server: granian is an extra: pip install 'accord[granian]'") from None
    # A fork would share the modules and files that this process has loaded and opened.
    multiprocessing.set_start_method("spawn", force=True)
    server = settings.server
    granian = Granian(
        worker,
        factory=True,
        address=address,
        port=server.port,
        interface=Interfaces.ASGI,
        workers=server.workers,
        http=HTTPModes.auto,
        websockets=False,
        log_level=LogLevels.error,
        ssl_cert=Path(server.tls_cert) if server.tls_cert else None,
        ssl_key=Path(server.tls_key) if server.tls_key else None,
        ssl_ca=Path(server.tls_client_ca) if server.tls_client_ca else None,
        ssl_client_verify=server.tls_client_ca is not None,
        respawn_failed_workers=True,
        workers_kill_timeout=round(server.drain_seconds + server.grace_seconds) + GRANIAN_KILL_SECONDS,
        reload=watched is not None,
        reload_filter=_change_filter(watched),  # as with uvicorn; the store's file may be there too
        reload_ignore_worker_failure=True,  # the next change may fix it
        reload_paths=None if watched is None else [Path(one) for one in watched.folders],
    )
    granian.on_startup(lambda: _call_when_listening((address, server.port), on_listen))
    granian.serve()


def _change_filter(watched: WatchedFiles | None) -> type[Any]:
    from watchfiles import Change, DefaultFilter

    class Filter(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            is_ours = path.endswith(".py") or (watched is not None and Path(path).name in watched.names)
            return is_ours and super().__call__(change, path)

    return Filter


def _call_when_listening(address: tuple[str, int], then: Callable[[], None]) -> None:
    """Call a function once an address accepts connections: granian's processes report nothing."""

    def wait_for_server() -> None:
        while not _is_listening(address):
            time.sleep(LISTENING_POLL_SECONDS)
        then()

    threading.Thread(target=wait_for_server, name="accord-reach", daemon=True).start()


def _is_listening(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, timeout=1.0):
        return True
    return False


def drain_granian(application: Application) -> None:
    """Stop granian in time: it would wait for endless streams, and kill them with work in progress.

    Granian handles SIGINT as well as SIGTERM, so this handler takes SIGTERM, drains, and then raises SIGINT.
    """
    loop, server = asyncio.get_running_loop(), application.settings.server
    waiting: asyncio.TimerHandle | None = None

    def stop() -> None:
        nonlocal waiting
        if server.drain_seconds and not application.is_leaving:
            application.leave()
            waiting = loop.call_later(server.drain_seconds, stop)
            return
        if waiting is not None:
            waiting.cancel()
        application.finish()
        signal.raise_signal(signal.SIGINT)

    loop.add_signal_handler(signal.SIGTERM, stop)


CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers for TLS 1.2, the oldest that Python accepts: forward secrecy and authenticated encryption, as in all of
1.3's."""

STARTUP_FAILURE = 3
"""Exit code of a uvicorn process whose application could not start."""

NOT_STARTED_MESSAGE = "The server could not be started, for the reason above."

UVICORN_GAVE_UP = "Application startup failed. Exiting."
"""Uvicorn's message after the reason."""

PORT_FIX = "Choose another port with --port."
HOST_FIX = "Choose an address of this machine with --host."

UVICORN_STOPS = "Cancel %s running task(s), timeout graceful shutdown exceeded"
UVICORN_UNFINISHED = "ASGI callable returned without completing response."
"""Uvicorn's errors for a stop with open streams, and for an abandoned response."""

LATE_SECONDS = 5
"""Seconds beyond the grace period after which uvicorn no longer waits for responses that it ends."""

GARBAGE_THRESHOLDS = 20_000, 20, 50
"""Thresholds of garbage collection. Python's own 700, 10 and 10 are for programs with many cycles. Here reference
counting frees almost everything, and half of the processor's time went into collection."""


class CannotListen(Exception):
    """The server cannot start. The message has the reason and a remedy."""


def tune_garbage_collection() -> None:
    """Run garbage collection less often, and never on objects from before the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def run(application: Application) -> None:
    """Serve an application in this process until a signal."""
    settings = application.settings
    application.on_start.insert(0, lambda: drain_on_signals(application))  # before readiness is reported
    application.on_start += [tune_garbage_collection, notify_systemd]
    application.keep_local()
    check_tls(settings.server)
    server = uvicorn.Server(
        _uvicorn_config(application, settings, http=connection_class(settings.limits, _trusted(settings.server)))
    )
    _silence_uvicorn(application)
    logging.getLogger("uvicorn.error").addFilter(lambda record: not _is_start_refusal(application, record))
    listening = listen(settings.server)
    with _exit_cleanly():
        server.run([listening])
    if not server.started:
        raise CannotListen(application.refusal or NOT_STARTED_MESSAGE)


def _is_start_refusal(application: Application, record: logging.LogRecord) -> bool:
    """Whether a record is uvicorn's report of a failed start, which `run` reports better."""
    return application.refusal is not None and record.msg in (application.refusal, UVICORN_GAVE_UP)


def run_workers(
    settings: Settings, worker: str, on_listen: Callable[[], None], *, watched: WatchedFiles | None = None
) -> None:
    """Serve the application that the function `worker` returns, in processes that are replaced when they end.

    Changes of `watched` files also replace them.
    """
    check_tls(settings.server)
    listening = listen(settings.server)
    _start_tracker()
    if settings.server.server is HttpServer.GRANIAN:
        address = listening.getsockname()[0]
        listening.close()
        run_granian(settings, worker, address, on_listen, watched)
        return
    on_listen()
    if watched is not None:
        from uvicorn.supervisors import ChangeReload

        looked_at = {"reload_dirs": watched.folders, "reload_includes": watched.names}
        config = _uvicorn_config(worker, settings, http=Connection, factory=True, reload=True, **looked_at)
        ChangeReload(config, target=uvicorn.Server(config).run, sockets=[listening]).run()
    else:
        config = _uvicorn_config(worker, settings, http=Connection, factory=True, workers=settings.server.workers)
        _supervise(config, listening)


def _start_tracker() -> None:
    """Start multiprocessing's resource tracker without secrets, since commands can read its environment."""
    whole = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(command_variables(whole))
        resource_tracker.ensure_running()
    finally:
        os.environ.update(whole)


def _supervise(config: uvicorn.Config, listening: socket.socket) -> None:
    from uvicorn.supervisors import Multiprocess

    class Supervisor(Multiprocess):
        def terminate_all(self) -> None:
            listening.close()  # otherwise the system would accept connections that no process answers
            super().terminate_all()

    supervisor = Supervisor(config, sockets=[listening])
    supervisor.run()
    if any(process.process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise CannotListen(NOT_STARTED_MESSAGE)


def listen(server: ServerSettings) -> socket.socket:
    """Open the port. `::` is every address of the machine, of either family."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    is_dual = server.host == "::" and socket.has_dualstack_ipv6()
    try:
        found = socket.create_server((server.host, server.port), family=family, backlog=2048, dualstack_ipv6=is_dual)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "The name has no address"  # those of resolution are negative
        remedy = HOST_FIX if number < 0 or number == errno.EADDRNOTAVAIL else PORT_FIX
        raise CannotListen(f"Cannot listen on {server.host}:{server.port}: {reason}. {remedy}") from None
    found.set_inheritable(True)
    return found


def check_tls(server: ServerSettings) -> None:
    """Check TLS certificates before the server starts."""
    if not server.tls_cert:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(server.tls_cert, server.tls_key, password="")  # otherwise it would prompt for one
    except (OSError, ValueError) as error:
        raise CannotListen(f"{server.tls_cert} and {server.tls_key} cannot be used for TLS: {error}") from None
    try:
        if server.tls_client_ca:
            context.load_verify_locations(server.tls_client_ca)
    except (OSError, ValueError) as error:
        raise CannotListen(f"{server.tls_client_ca} cannot be used for TLS: {error}") from None


def prepare_worker(application: Application) -> None:
    """Prepare a worker process: set limits and signal handlers, and stop it when its parent ends."""
    settings = application.settings
    Connection.quotas, Connection.trusted = settings.limits, _trusted(settings.server)
    stopping = drain_granian if settings.server.server is HttpServer.GRANIAN else drain_on_signals
    application.on_start += [lambda: stopping(application), tune_garbage_collection, notify_systemd]
    application.keep_local()
    _silence_uvicorn(application)
    end_with_parent()


def _trusted(server: ServerSettings) -> tuple[Network, ...]:
    return parse_networks(server.trusted_proxies) if server.behind_proxy else ()


def end_with_parent() -> None:
    """Stop this process when its parent ends."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=watch, name="accord-parent", daemon=True).start()


def _silence_uvicorn(application: Application) -> None:
    """Filter uvicorn's errors about streams that end with the server and responses that no client reads."""

    def matters(record: logging.LogRecord) -> bool:
        return record.msg != UVICORN_UNFINISHED and (not application.is_over or record.msg != UVICORN_STOPS)

    logging.getLogger("uvicorn.error").addFilter(matters)


@contextmanager
def _exit_cleanly() -> Iterator[None]:
    """Exit with success after a handled signal, which uvicorn raises again after its shutdown.

    The caller handles the exit of a process that did not start.
    """

    def leave(_number: int, _frame: Any) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except SystemExit as error:
        if not error.code:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _uvicorn_config(app: App | str, settings: Settings, **more: Any) -> uvicorn.Config:
    server = settings.server
    if settings.telemetry.log_format is LogFormat.JSON:
        more["log_config"] = None  # its records are written as all others are
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the application reads those of trusted proxies
        timeout_graceful_shutdown=ceil(server.grace_seconds) + LATE_SECONDS,
        ssl_certfile=server.tls_cert,
        ssl_keyfile=server.tls_key,
        ssl_ca_certs=server.tls_client_ca,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if server.tls_client_ca else ssl.CERT_NONE,
        ssl_ciphers=CIPHERS,
        **more,
    )
