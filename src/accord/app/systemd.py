"""Telling systemd that the server is ready, where that has started it: `Type=notify` of a unit, sd_notify(3).

It is one datagram, and nothing at all where nobody asked for it. Whoever serves (`app.server`) says it, in each process
that answers requests.
"""

import logging
import os
import socket

VARIABLE, READY = "NOTIFY_SOCKET", b"READY=1"

log = logging.getLogger("accord.systemd")


def tell_ready() -> None:
    """Say that requests are answered; if it cannot be said the server is there all the same."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        try:
            systemd.sendto(READY, f"\0{address[1:]}" if address.startswith("@") else address)  # @: one without a file
        except OSError as error:
            log.warning("systemd was not told", extra={"reason": str(error)})
