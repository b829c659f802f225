"""A way to authenticate: `Authorization: Ticket OWNER.EXPIRES.SIGNATURE`, signed by whoever sells the tickets."""

import hashlib
import hmac
from collections.abc import Callable, Mapping

from accord.api import AuthenticationFailed, Identity, MaskedSettings, Ports, Presented, SchemeType, challenge
from accord.model import HttpAuthScheme, SecurityScheme

MIN_SECRET = 16


class Tickets(MaskedSettings, frozen=True, kw_only=True):
    """How it is set up."""

    SECRET = frozenset({"secret"})

    secret: str
    roles: tuple[str, ...] = ("user",)

    def __post_init__(self) -> None:
        """Refuse a secret that could be guessed."""
        if len(self.secret) < MIN_SECRET:
            raise ValueError(f"`secret` needs at least {MIN_SECRET} characters")


def ticket(secret: str, owner: str, expires: int) -> str:
    """Return a ticket, as whoever sells them makes it."""
    signature = hmac.digest(secret.encode(), f"{owner}.{expires}".encode(), hashlib.sha256)
    return f"{owner}.{expires}.{signature.hex()}"


class TicketAccess:
    """Callers with a ticket."""

    name = "tickets"
    challenge = challenge("Ticket")

    def __init__(self, settings: Tickets, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now

    @property
    def security(self) -> Mapping[str, SecurityScheme]:
        """What the card says."""
        return {"ticket": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Ticket"))}

    async def identify(self, presented: Presented) -> Identity | None:
        """Return whose ticket a request brings."""
        text = presented.credentials("ticket")
        if text is None:
            return None
        owner, expires, *_ = *text.rsplit(".", 2)[:2], ""
        right = ticket(self._settings.secret, owner, int(expires)) if expires.isdecimal() else ""
        if not hmac.compare_digest(text.encode(), right.encode()) or int(expires) < self._now():
            raise AuthenticationFailed
        return Identity(owner=owner, roles=frozenset(self._settings.roles))


def _built(settings: Tickets, ports: Ports) -> TicketAccess:
    return TicketAccess(settings, ports.now)


SCHEME = SchemeType(settings=Tickets, build=_built)
