"""Signing in and out over HTTP: `/api/session`, with a key or a name and a password.

What somebody brings is tried by the server's own schemes, under the same eyes as any other request; whoever passes gets
a session in a cookie. It makes no decision about credentials: those are `core.access`. Issuers are
`console.entry.issuers`, the page is the front end's.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from accord.a2a import Caller
from accord.bindings import origins
from accord.bindings.http import Headers, Scope
from accord.console.entry.door import Door, brought
from accord.console.entry.ways import KEYS, PASSWORDS, SECRETS, key_id, with_password
from accord.console.paths import SESSIONS
from accord.console.routing import Asked, Reply, Route
from accord.console.views import SessionView, Way
from accord.errors import AuthenticationFailed, InvalidParams
from accord.protocol import codec


class Credentials(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What somebody signs in with: a key or a secret, or a name and a password."""

    api_key: str | None = None
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return "Credentials()"


_credentials = Decoder(Credentials)


class SessionApi:
    """The handlers."""

    def __init__(self, door: Door, *, version: str, url: str, features: Mapping[str, bool]) -> None:
        """Let people in by `door`, to a server of this version at `url` that has these features."""
        self._door = door
        self._version = version
        self._url = url
        self._features = features

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (
            Route("GET", SESSIONS, self.look, is_open=True, gives=SessionView),
            Route("POST", SESSIONS, self.sign_in, is_open=True, takes=Credentials, gives=SessionView),
            Route("DELETE", SESSIONS, self.sign_out, is_open=True, status=204),
        )

    async def look(self, asked: Asked) -> Reply:
        """Say who is signed in, and how one signs in."""
        return Reply(200, self._view(asked.caller, asked.scope))

    async def sign_in(self, asked: Asked) -> Reply:
        """Sign in, and get a cookie."""
        given = codec.decode(asked.body, _credentials)
        if self._door.is_open:
            return Reply(200, self._view(asked.caller, asked.scope))
        self._door.count(asked.scope)
        caller, ground = await self._tried(given, asked.scope)
        cookie = await self._door.begin(caller, asked.scope, **ground)
        return Reply(200, self._view(caller, asked.scope), headers=cookie)

    async def sign_out(self, asked: Asked) -> Reply:
        """Sign out: the session ends, wherever its cookie may be."""
        return Reply(204, headers=await self._door.end(asked.caller, asked.scope))

    async def _tried(self, given: Credentials, scope: Scope) -> tuple[Caller, dict[str, Any]]:
        """Return whom credentials let in, and what their session rests on."""
        ways = self._door.ways
        if given.api_key is not None and ways.takes_keys:
            key = given.api_key.strip()
            caller = await self._admitted(ways.with_key(key), scope)
            is_kept = caller.scheme == KEYS
            return caller, {"key_id": key_id(key)} if is_kept else {"ground": ways.ground(SECRETS, key)}
        if given.username and given.password is not None and ways.takes_passwords:
            if ":" in given.username:  # it would be the end of the name
                raise AuthenticationFailed
            caller = await self._admitted(with_password(given.username, given.password), scope)
            return caller, {"ground": ways.ground(PASSWORDS, given.username)}
        raise InvalidParams("One signs in with `apiKey`, or with `username` and `password`, as the server has it")

    async def _admitted(self, headers: Headers, scope: Scope) -> Caller:
        try:
            return await self._door.admit(brought(scope, headers))
        except AuthenticationFailed as error:
            error.challenges = ()  # the page asks again, not the browser
            raise

    def _view(self, caller: Caller | None, scope: Scope) -> SessionView:
        return SessionView(
            signed_in=caller is not None,
            is_open=self._door.is_open,
            name=caller.owner if caller else "",
            tenant=caller.tenant if caller else "",
            roams=caller.roams if caller else False,
            roles=sorted(caller.roles or ()) if caller else [],
            ways=self._ways(scope.get("accord.mount", "")),
            version=self._version,
            url=origins.at(self._url, origins.asked(scope)),
            features=dict(self._features),
        )

    def _ways(self, mount: str) -> list[Way]:
        door = self._door
        found = [
            Way(kind="oidc", label=issuer.label, url=f"{mount}{SESSIONS}/oidc/{name}")
            for name, issuer in door.issuers.items()
        ]
        if door.ways.takes_passwords:
            found.append(Way(kind="password", label="Name and password", url=None))
        if door.ways.takes_keys:
            found.append(Way(kind="api-key", label="API key", url=None))
        return found
