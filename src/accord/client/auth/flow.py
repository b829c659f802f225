"""What a way to authenticate is to a request: a generator that adds credentials and may ask for something first.

It sends nothing: a flow yields the requests that it needs (one for a token), is sent their answers, and returns the
request as it is to be sent. `driver` runs flows; the other files of this folder are flows.
"""

from collections.abc import Generator
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

from msgspec.structs import replace

from accord.client.wire import Outgoing, Reply

Flow = Generator[Outgoing, Reply, Outgoing]


class Auth(Protocol):
    """One way to authenticate."""

    def prepare(self, request: Outgoing) -> Flow:
        """Return the request with credentials; what it yields first is to be answered first."""

    def retry(self, request: Outgoing, refused: Reply) -> Flow | None:
        """Return how to ask again after a 401, or None if that would be the same again.

        `request` is what was refused, with its credentials.
        """


def with_header(request: Outgoing, name: str, value: str) -> Outgoing:
    """Return the request with a header in place of all of that name."""
    others = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return replace(request, headers=(*others, (name, value)))


def header_of(request: Outgoing, name: str) -> str | None:
    """Return the first value of a header."""
    return next((value for stated, value in request.headers if stated.lower() == name.lower()), None)


def with_query(request: Outgoing, name: str, value: str) -> Outgoing:
    """Return the request with a query parameter, both already encoded, in place of all of that name."""
    parts = urlsplit(request.url)
    others = [pair for pair in parts.query.split("&") if pair and pair.partition("=")[0] != name]
    return replace(request, url=urlunsplit(parts._replace(query="&".join([*others, f"{name}={value}"]))))


def with_cookie(request: Outgoing, name: str, value: str) -> Outgoing:
    """Return the request with a cookie in place of one of that name."""
    stated = (header_of(request, "Cookie") or "").split(";")
    others = [pair for part in stated if (pair := part.strip()) and pair.partition("=")[0] != name]
    return with_header(request, "Cookie", "; ".join([*others, f"{name}={value}"]))
