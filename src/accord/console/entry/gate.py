"""Who asks the console, and the registry beside it: somebody who has signed in, or whom the server's schemes let in.

It decides that and nothing else. A session counts for what is under `/api/` alone: agents are called with credentials,
which no page can make a browser bring along.
"""

from accord.a2a import Caller
from accord.auth.authentication import Access, Presented, challenge
from accord.bindings.http import Admit
from accord.console.entry import origin
from accord.console.entry.cookies import SESSION
from accord.console.entry.sessions import Sessions
from accord.errors import AuthenticationFailed

CHALLENGE = challenge("Session")
"""What is asked of a browser: were it told of passwords, it would put a window of its own over the page."""


class Gate:
    """Lets callers in."""

    def __init__(self, access: Access, admit: Admit, sessions: Sessions, *, is_public: bool = False) -> None:
        """Let in who has a session, or else whom `access` does; `admit` is its own way in, with somebody who watches.

        With `is_public`, pages of any origin may read what strangers may.
        """
        self._access = access
        self._admit = admit
        self._sessions = sessions
        self._is_public = is_public

    async def visit(self, presented: Presented) -> Caller | None:
        """Return the caller, None if it does not say who it is."""
        origin.check(presented, is_public=self._is_public)
        return await self._session(presented) or await self._access.visit(presented)

    async def admit(self, presented: Presented) -> Caller:
        """Return the caller, or refuse it."""
        origin.check(presented, is_public=self._is_public)
        found = await self._session(presented)
        if found is not None:
            return found
        try:
            return await self._admit(presented)
        except AuthenticationFailed as error:
            if is_browser(presented):
                error.challenges = (CHALLENGE,)
            raise

    async def _session(self, presented: Presented) -> Caller | None:
        token = None if self._access.is_open else SESSION.read(presented)
        return None if token is None else await self._sessions.find(token, presented.peer)


def is_browser(presented: Presented) -> bool:
    """Whether a person's browser asks, which all call themselves by the same name."""
    return (presented.header("user-agent") or "").startswith("Mozilla/")
