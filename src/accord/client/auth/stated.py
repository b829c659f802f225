"""Credentials that are sent as they are: a key, a token, a name with a password, headers of any name, or none.

Nothing here is asked for, cached or refreshed, so a 401 is final. Which of them a card asks for is `choice`'s business.
"""

import base64
from collections.abc import Mapping
from http.cookies import SimpleCookie
from urllib.parse import quote

from accord.client.auth.flow import Flow, with_cookie, with_header, with_query
from accord.client.wire import Outgoing, Reply


class Stated:
    """Base of what only adds to a request; its `repr` has no secrets."""

    def prepare(self, request: Outgoing) -> Flow:
        """Return the request with what is added."""
        return self.added(request)
        yield  # pragma: no cover  # what makes it a generator: nothing is asked for

    def retry(self, request: Outgoing, refused: Reply) -> Flow | None:
        """It would be the same again."""
        return None

    def added(self, request: Outgoing) -> Outgoing:
        """Return the request with credentials."""
        return request

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Anonymous(Stated):
    """No credentials."""


class ApiKey(Stated):
    """A key in a header, a query parameter or a cookie."""

    def __init__(self, key: str, *, location: str = "header", name: str = "X-Api-Key") -> None:
        """Put `key` into the place that a card names."""
        try:
            self._add = _PLACES[location.lower()]
        except KeyError:
            raise ValueError(f"A key goes into a {', '.join(_PLACES)}, not into {location!r}") from None
        self._name = name
        self._key = _printable(key)
        self.location = location

    def added(self, request: Outgoing) -> Outgoing:
        """Add the key."""
        return self._add(request, self._name, self._key)

    def __repr__(self) -> str:
        return f"ApiKey(location={self.location!r}, name={self._name!r})"


def _in_query(request: Outgoing, name: str, key: str) -> Outgoing:
    return with_query(request, quote(name, safe=""), quote(key, safe=""))


def _in_cookie(request: Outgoing, name: str, key: str) -> Outgoing:
    """Add a cookie; what a cookie cannot hold as it is goes in quotes, as servers' libraries read it."""
    coded = SimpleCookie({name: key})[name].coded_value
    return with_cookie(request, name, coded)


_PLACES = {"header": with_header, "query": _in_query, "cookie": _in_cookie}


class Bearer(Stated):
    """A token in `Authorization`, after the name of an HTTP authentication scheme."""

    def __init__(self, token: str, *, scheme: str = "Bearer") -> None:
        """Send `token`."""
        self._value = f"{scheme} {_printable(token)}"

    def added(self, request: Outgoing) -> Outgoing:
        """Add the token."""
        return with_header(request, "Authorization", self._value)


class Basic(Stated):
    """A name and a password (RFC 7617), in UTF-8."""

    def __init__(self, username: str, password: str) -> None:
        """Send the name with the password."""
        if ":" in username:
            raise ValueError("A user's name has no colon")
        self._value = "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()

    def added(self, request: Outgoing) -> Outgoing:
        """Add them."""
        return with_header(request, "Authorization", self._value)


class CustomHeader(Stated):
    """Headers of any name."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """Send these headers."""
        self._headers = {name: _printable(value) for name, value in headers.items()}

    def added(self, request: Outgoing) -> Outgoing:
        """Add them, each in place of one that is there."""
        for name, value in self._headers.items():
            request = with_header(request, name, value)
        return request

    def __repr__(self) -> str:
        return f"CustomHeader(names={sorted(self._headers)})"


def _printable(secret: str) -> str:
    """Refuse what no header can hold, such as the line break at the end of a file, without repeating it."""
    if not secret or not secret.isprintable() or not secret.isascii() or secret != secret.strip():
        raise ValueError("A credential is printable ASCII, without spaces around it; this one is not")
    return secret
