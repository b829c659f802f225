"""Granian as the server: HTTP/2 besides HTTP/1.1, for those who have the extra `granian`.

It manages its own processes, in which `app.server` prepares the application as in uvicorn's. It tells nobody when it
listens, and waits for streams that never end; both are mended here.
"""

import asyncio
import multiprocessing
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from accord.app.application import Application
from accord.config.files import BadSettings
from accord.config.settings import Settings

KILL_SECONDS = 15
"""How long its processes may take to stop, beyond the time that is given to draining and the grace."""

LOOK_SECONDS = 0.05
"""How often to look whether it listens."""


class Watched(NamedTuple):
    """Folders in which modules, and other files of these names, are looked at for changes."""

    folders: list[str]
    names: list[str]


def run(settings: Settings, worker: str, address: str, on_listen: Callable[[], None], watched: Watched | None) -> None:
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
        workers_kill_timeout=round(server.drain_seconds + server.grace_seconds) + KILL_SECONDS,
        reload=watched is not None,
        reload_filter=_filter(watched),  # as with uvicorn; the store may be a file there as well
        reload_ignore_worker_failure=True,  # the next change may mend it
        reload_paths=None if watched is None else [Path(one) for one in watched.folders],
    )
    granian.on_startup(lambda: _when_reached((address, server.port), on_listen))
    granian.serve()


def _filter(watched: Watched | None) -> type[Any]:
    """Return what tells the changes that matter."""
    from watchfiles import Change, DefaultFilter

    class Filter(DefaultFilter):
        def __call__(self, change: Change, path: str) -> bool:
            is_ours = path.endswith(".py") or (watched is not None and Path(path).name in watched.names)
            return is_ours and super().__call__(change, path)

    return Filter


def _when_reached(address: tuple[str, int], then: Callable[[], None]) -> None:
    """Do something once somebody listens at an address: granian's processes do that one by one, and tell nobody."""

    def look() -> None:
        while not _is_reached(address):
            time.sleep(LOOK_SECONDS)
        then()

    threading.Thread(target=look, name="accord-reach", daemon=True).start()


def _is_reached(address: tuple[str, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, timeout=1.0):
        return True
    return False


def end_streams(application: Application) -> None:
    """Have granian stop in time: it waits for streams without end, and would at last be killed with work in its hands.

    It heeds SIGINT as well as SIGTERM, so that one of them can be ours: it drains first (`app.draining`).
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
