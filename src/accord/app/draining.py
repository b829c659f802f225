"""What SIGTERM means before anything is closed: whoever balances requests is told, and gets the time to notice.

How a server then stops is its own (`app.server`, `app.granian`), and what becomes of running work the engine's. It
stands between the signal and whatever handled it before, in each process that answers requests.
"""

import asyncio
import signal
from typing import Any

from accord.app.application import Application


def drain_first(application: Application) -> None:
    """Have SIGTERM make the server unready at once, and stop it `drain_seconds` later; a second one stops it now."""
    seconds = application.settings.server.drain_seconds
    stop = signal.getsignal(signal.SIGTERM)
    if not seconds or not callable(stop):
        return
    loop = asyncio.get_running_loop()

    def leave(number: int, frame: Any) -> None:
        if application.is_leaving:
            stop(number, frame)
            return
        application.leave()
        loop.call_soon_threadsafe(loop.call_later, seconds, stop, number, None)  # a signal interrupts the loop

    signal.signal(signal.SIGTERM, leave)
