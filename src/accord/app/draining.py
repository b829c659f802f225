"""What a signal to stop means before anything is closed: whoever balances requests is told, and the grace begins.

How a server then stops is its own (`app.server`, `app.granian`), and what becomes of running work the engine's. It
stands between the signal and whatever handled it before, in each process that answers requests.
"""

import asyncio
import signal
from typing import Any

from accord.app.application import Application


def stop_in_time(application: Application) -> None:
    """Have SIGTERM make the server unready at once, and stop it `drain_seconds` later; a second one stops it now.

    SIGINT is from somebody who waits: it stops it at once. What goes on then has the grace.
    """
    for number, seconds in ((signal.SIGTERM, application.settings.server.drain_seconds), (signal.SIGINT, 0.0)):
        _handle(number, seconds, application)


def _handle(number: signal.Signals, seconds: float, application: Application) -> None:
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
