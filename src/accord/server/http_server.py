"""The HTTP server in front of the application: uvicorn or granian, one process or several.

It takes the port before anything claims to listen on it, ends TLS, closes slow connections, drains after SIGTERM and
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
from accord.auth.trusted_proxies import Network, networks
from accord.http.asgi import App
from accord.http.connections import Connection, connection_class
from accord.server.application import Application
from accord.server.settings import HttpServer, LogFormat, ServerSettings, Settings
from accord.server.settings_loader import BadSettings

SYSTEMD_VARIABLE, SYSTEMD_READY = "NOTIFY_SOCKET", b"READY=1"

log = logging.getLogger("accord.systemd")


def notify_systemd() -> None:
    """Say that requests are answered; if it cannot be said the server is there all the same."""
    address = os.environ.get(SYSTEMD_VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        try:
            systemd.sendto(
                SYSTEMD_READY, f"\0{address[1:]}" if address.startswith("@") else address
            )  # @: one without a file
        except OSError as error:
            log.warning("systemd was not told", extra={"reason": str(error)})


def drain_on_signals(application: Application) -> None:
    """Have SIGTERM make the server unready at once, and stop it `drain_seconds` later; a second one stops it now.

    SIGINT is from somebody who waits: it stops it at once. What goes on then has the grace.
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
"""How long its processes may take to stop, beyond the time that is given to draining and the grace."""

LISTENING_POLL_SECONDS = 0.05
"""How often to look whether it listens."""


class WatchedFiles(NamedTuple):
    """Folders in which modules, and other files of these names, are looked at for changes."""

    folders: list[str]
    names: list[str]


def run_granian(
    settings: Settings, worker: str, address: str, on_listen: Callable[[], None], watched: WatchedFiles | None
) -> None:
    """Serve what the function `worker` of some module makes, in processes that are replaced when they end."""
    try:
        from granian import Granian
        from granian.constants import HTTPModes, Interfaces
        from granian.log import LogLevels
    except ImportError:
        raise BadSettings("server.server: granian is an extra: pip install 'accord[granian]'") from None
    # What this process has loaded and opened must not be shared with its children, which a fork would do.
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
        reload_filter=_change_filter(watched),  # as with uvicorn; the store may be a file there as well
        reload_ignore_worker_failure=True,  # the next change may mend it
        reload_paths=None if watched is None else [Path(one) for one in watched.folders],
    )
    granian.on_startup(lambda: _call_when_listening((address, server.port), on_listen))
    granian.serve()


def _change_filter(watched: WatchedFiles | None) -> type[Any]:
    """Return what tells the changes that matter."""
    from watchfiles import Change, DefaultFilter

    class Filter(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            is_ours = path.endswith(".py") or (watched is not None and Path(path).name in watched.names)
            return is_ours and super().__call__(change, path)

    return Filter


def _call_when_listening(address: tuple[str, int], then: Callable[[], None]) -> None:
    """Do something once somebody listens at an address: granian's processes do that one by one, and tell nobody."""

    def look() -> None:
        while not _is_listening(address):
            time.sleep(LISTENING_POLL_SECONDS)
        then()

    threading.Thread(target=look, name="accord-reach", daemon=True).start()


def _is_listening(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, timeout=1.0):
        return True
    return False


def drain_granian(application: Application) -> None:
    """Have granian stop in time: it waits for streams without end, and would at last be killed with work in its hands.

    It heeds SIGINT as well as SIGTERM, so that one of them can be ours: it drains first (`server.http_server`).
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
"""For TLS 1.2, the oldest that Python accepts: forward secrecy and authenticated encryption, as in all of 1.3's."""

STARTUP_FAILURE = 3
"""How a process of uvicorn's ends whose application could not start."""

NOT_STARTED_MESSAGE = "The server could not be started, for the reason above."

UVICORN_GAVE_UP = "Application startup failed. Exiting."
"""What uvicorn says after the reason."""

PORT_FIX = "Choose another port with --port."
HOST_FIX = "Choose an address of this machine with --host."

UVICORN_STOPS = "Cancel %s running task(s), timeout graceful shutdown exceeded"
UVICORN_UNFINISHED = "ASGI callable returned without completing response."
"""What uvicorn calls errors: that it stops and a task is still followed, and that an answer was given up."""

LATE_SECONDS = 5
"""How much longer than the grace answers can take that are ended with it, before uvicorn does not wait for them."""

GARBAGE_THRESHOLDS = 20_000, 20, 50
"""When Python looks for garbage in cycles. Its own 700, 10 and 10 are for programs that make many: here almost
everything goes by itself, and half of the processor's time went into looking."""


class CannotListen(Exception):
    """The server cannot be started, and what to do."""


def tune_garbage_collection() -> None:
    """Let Python look for garbage less often, and never among what has been there since the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


def run(application: Application) -> None:
    """Serve an application in this process until a signal comes."""
    settings = application.settings
    application.on_start.insert(0, lambda: drain_on_signals(application))  # before anybody is told that it is there
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
    """Whether uvicorn says why the application did not start, which whoever runs this says better."""
    return application.refusal is not None and record.msg in (application.refusal, UVICORN_GAVE_UP)


def run_workers(
    settings: Settings, worker: str, on_listen: Callable[[], None], *, watched: WatchedFiles | None = None
) -> None:
    """Serve what the function `worker` of some module makes, in processes that are replaced when they end.

    They are replaced as well when something changes that is `watched`.
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
    """Start the helper that multiprocessing starts with its first process, which commands can look into: without
    secrets."""
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
            listening.close()  # or the system would still take connections, and nobody answer them
            super().terminate_all()

    supervisor = Supervisor(config, sockets=[listening])
    supervisor.run()
    if any(process.process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise CannotListen(NOT_STARTED_MESSAGE)


def listen(server: ServerSettings) -> socket.socket:
    """Take the port; `::` is every address of the machine, of either family."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    is_dual = server.host == "::" and socket.has_dualstack_ipv6()
    try:
        found = socket.create_server((server.host, server.port), family=family, backlog=2048, dualstack_ipv6=is_dual)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "The name has no address"  # those of names are negative
        remedy = HOST_FIX if number < 0 or number == errno.EADDRNOTAVAIL else PORT_FIX
        raise CannotListen(f"Cannot listen on {server.host}:{server.port}: {reason}. {remedy}") from None
    found.set_inheritable(True)
    return found


def check_tls(server: ServerSettings) -> None:
    """Refuse certificates that cannot be used, before anybody relies on them."""
    if not server.tls_cert:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(server.tls_cert, server.tls_key, password="")  # or it would ask for one
    except (OSError, ValueError) as error:
        raise CannotListen(f"{server.tls_cert} and {server.tls_key} cannot be used for TLS: {error}") from None
    try:
        if server.tls_client_ca:
            context.load_verify_locations(server.tls_client_ca)
    except (OSError, ValueError) as error:
        raise CannotListen(f"{server.tls_client_ca} cannot be used for TLS: {error}") from None


def prepare_worker(application: Application) -> None:
    """Prepare one of several processes: it keeps to the limits, and stops when the one that started it is gone."""
    settings = application.settings
    Connection.quotas, Connection.trusted = settings.limits, _trusted(settings.server)
    stopping = drain_granian if settings.server.server is HttpServer.GRANIAN else drain_on_signals
    application.on_start += [lambda: stopping(application), tune_garbage_collection, notify_systemd]
    application.keep_local()
    _silence_uvicorn(application)
    end_with_parent()


def _trusted(server: ServerSettings) -> tuple[Network, ...]:
    return networks(server.trusted_proxies) if server.behind_proxy else ()


def end_with_parent() -> None:
    """Stop this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=watch, name="accord-parent", daemon=True).start()


def _silence_uvicorn(application: Application) -> None:
    """Keep out of the log what uvicorn calls errors: streams that end with the server, answers that no client reads."""

    def matters(record: logging.LogRecord) -> bool:
        return record.msg != UVICORN_UNFINISHED and (not application.is_over or record.msg != UVICORN_STOPS)

    logging.getLogger("uvicorn.error").addFilter(matters)


@contextmanager
def _exit_cleanly() -> Iterator[None]:
    """Let a signal that was obeyed count as a success: uvicorn sends it to itself once more when all is done.

    How it ends the process that did not start is left to who asked for it.
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
        proxy_headers=False,  # those of trusted proxies are read by the application
        timeout_graceful_shutdown=ceil(server.grace_seconds) + LATE_SECONDS,
        ssl_certfile=server.tls_cert,
        ssl_keyfile=server.tls_key,
        ssl_ca_certs=server.tls_client_ca,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if server.tls_client_ca else ssl.CERT_NONE,
        ssl_ciphers=CIPHERS,
        **more,
    )
