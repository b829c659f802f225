"""The HTTP server in front of the application: one process or several, with uvicorn or granian.

It takes the port before anything claims to listen on it, ends TLS, and closes connections that do not get on. What is
answered is the application's.
"""

import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from multiprocessing import resource_tracker
from typing import Any

import uvicorn

from accord.agents.command_environment import command_variables
from accord.app import granian
from accord.app.application import Application
from accord.app.draining import stop_in_time
from accord.app.granian import Watched
from accord.app.systemd import tell_ready
from accord.auth.trusted_proxies import Network, networks
from accord.bindings.connections import Connection, connections
from accord.bindings.http import App
from accord.config.settings import HttpServer, LogFormat, Server, Settings

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2, the oldest that Python accepts: forward secrecy and authenticated encryption, as in all of 1.3's."""

STARTUP_FAILURE = 3
"""How a process of uvicorn's ends whose application could not start."""

NOT_STARTED = "The server could not be started, for the reason above."

GIVEN_UP = "Application startup failed. Exiting."
"""What uvicorn says after the reason."""

PORTS = "Choose another port with --port."
HOSTS = "Choose an address of this machine with --host."

STOPS = "Cancel %s running task(s), timeout graceful shutdown exceeded"
UNFINISHED = "ASGI callable returned without completing response."
"""What uvicorn calls errors: that it stops and a task is still followed, and that an answer was given up."""

LATE_SECONDS = 5
"""How much longer than the grace answers can take that are ended with it, before uvicorn does not wait for them."""

GARBAGE = 20_000, 20, 50
"""When Python looks for garbage in cycles. Its own 700, 10 and 10 are for programs that make many: here almost
everything goes by itself, and half of the processor's time went into looking."""


class CannotListen(Exception):
    """The server cannot be started, and what to do."""


def settle_down() -> None:
    """Let Python look for garbage less often, and never among what has been there since the start."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)


def run(application: Application) -> None:
    """Serve an application in this process until a signal comes."""
    settings = application.settings
    application.on_start.insert(0, lambda: stop_in_time(application))  # before anybody is told that it is there
    application.on_start += [settle_down, tell_ready]
    application.keep_local()
    check_tls(settings.server)
    server = uvicorn.Server(
        _uvicorn(application, settings, http=connections(settings.limits, _trusted(settings.server)))
    )
    _hush(application)
    logging.getLogger("uvicorn.error").addFilter(lambda record: not _is_told(application, record))
    listening = listen(settings.server)
    with _ending_well():
        server.run([listening])
    if not server.started:
        raise CannotListen(application.refusal or NOT_STARTED)


def _is_told(application: Application, record: logging.LogRecord) -> bool:
    """Whether uvicorn says why the application did not start, which whoever runs this says better."""
    return application.refusal is not None and record.msg in (application.refusal, GIVEN_UP)


def run_workers(
    settings: Settings, worker: str, on_listen: Callable[[], None], *, watched: Watched | None = None
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
        granian.run(settings, worker, address, on_listen, watched)
        return
    on_listen()
    if watched is not None:
        from uvicorn.supervisors import ChangeReload

        looked_at = {"reload_dirs": watched.folders, "reload_includes": watched.names}
        config = _uvicorn(worker, settings, http=Connection, factory=True, reload=True, **looked_at)
        ChangeReload(config, target=uvicorn.Server(config).run, sockets=[listening]).run()
    else:
        config = _uvicorn(worker, settings, http=Connection, factory=True, workers=settings.server.workers)
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
        raise CannotListen(NOT_STARTED)


def listen(server: Server) -> socket.socket:
    """Take the port; `::` is every address of the machine, of either family."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    is_dual = server.host == "::" and socket.has_dualstack_ipv6()
    try:
        found = socket.create_server((server.host, server.port), family=family, backlog=2048, dualstack_ipv6=is_dual)
    except OSError as error:
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else "The name has no address"  # those of names are negative
        remedy = HOSTS if number < 0 or number == errno.EADDRNOTAVAIL else PORTS
        raise CannotListen(f"Cannot listen on {server.host}:{server.port}: {reason}. {remedy}") from None
    found.set_inheritable(True)
    return found


def check_tls(server: Server) -> None:
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


def be_worker(application: Application) -> None:
    """Prepare one of several processes: it keeps to the limits, and stops when the one that started it is gone."""
    settings = application.settings
    Connection.quotas, Connection.trusted = settings.limits, _trusted(settings.server)
    stopping = granian.end_streams if settings.server.server is HttpServer.GRANIAN else stop_in_time
    application.on_start += [lambda: stopping(application), settle_down, tell_ready]
    application.keep_local()
    _hush(application)
    end_with_parent()


def _trusted(server: Server) -> tuple[Network, ...]:
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


def _hush(application: Application) -> None:
    """Keep out of the log what uvicorn calls errors: streams that end with the server, answers that no client reads."""

    def matters(record: logging.LogRecord) -> bool:
        return record.msg != UNFINISHED and (not application.is_over or record.msg != STOPS)

    logging.getLogger("uvicorn.error").addFilter(matters)


@contextmanager
def _ending_well() -> Iterator[None]:
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


def _uvicorn(app: App | str, settings: Settings, **more: Any) -> uvicorn.Config:
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
