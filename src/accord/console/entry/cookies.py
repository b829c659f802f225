"""The cookies of the console: their names, how they are read from a request, and how they are set.

Over TLS their names begin with `__Host-`, which browsers accept only from this very host and over TLS, so that neither
a neighbour of the same domain nor somebody on the network can set one; the plain name does not count there. What is in
them is `console.entry.sessions` and `console.entry.oidc`.
"""

from typing import NamedTuple

from accord.auth.authentication import Presented
from accord.bindings.http import Headers

PREFIX = "__Host-"


class Cookie(NamedTuple):
    """A cookie; `same_site` says whether it comes along when a page from elsewhere leads here."""

    name: str
    same_site: str

    def named(self, secure: bool) -> str:
        """Return the name that it has in requests of this kind."""
        return PREFIX + self.name if secure else self.name

    def read(self, presented: Presented) -> str | None:
        """Return its value; two of one name say nothing, because one of them was set by somebody else."""
        wanted = self.named(presented.secure)
        lines = (value.decode("latin-1") for name, value in presented.headers if name == b"cookie")
        pairs = [pair.strip().partition("=") for line in lines for pair in line.split(";")]
        found = {value for name, _, value in pairs if name == wanted}
        return found.pop() if len(found) == 1 else None

    def set(self, value: str, secure: bool, seconds: int) -> Headers:
        """Return how an answer sets it, for so many seconds."""
        flags = f"Path=/; Max-Age={seconds}; HttpOnly; SameSite={self.same_site}" + ("; Secure" if secure else "")
        return [(b"set-cookie", f"{self.named(secure)}={value}; {flags}".encode("latin-1"))]

    def clear(self, secure: bool) -> Headers:
        """Return how an answer takes it back."""
        return self.set("", secure, 0)


SESSION = Cookie("accord_session", "Strict")
"""Who has signed in. It never comes along from elsewhere; pages themselves are for everybody and ask again."""

PENDING = Cookie("accord_signin", "Lax")
"""Who is on the way to an issuer and back: coming back is a page from elsewhere that leads here."""
