"""Outgoing HTTP: one session type, with a policy about the addresses that it may connect to.

`HttpSession` sends with aiohttp, `httpx2` is for HTTP/2 and for clients that the caller created, and `open_transport`
chooses one by its name. All know nothing of A2A.
"""

from accord.outbound.messages import (
    MAX_BYTES,
    TIMEOUT_SECONDS,
    HttpReply,
    HttpRequest,
    HttpTransport,
    OpenReply,
    ReadReply,
    StreamBroken,
    StreamEndedEarly,
    TargetRefused,
    TimedOut,
    Unreachable,
    read_retry_after,
    too_large,
)
from accord.outbound.policy import Policy
from accord.outbound.session import HttpSession, open_transport

__all__ = [
    "MAX_BYTES",
    "TIMEOUT_SECONDS",
    "HttpReply",
    "HttpRequest",
    "HttpSession",
    "HttpTransport",
    "OpenReply",
    "Policy",
    "ReadReply",
    "StreamBroken",
    "StreamEndedEarly",
    "TargetRefused",
    "TimedOut",
    "Unreachable",
    "open_transport",
    "read_retry_after",
    "too_large",
]
