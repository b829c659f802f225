"""A browser as far as a server sees it: it keeps cookies, and says which page its requests come from."""

import json
from http.cookies import SimpleCookie
from typing import Any

from accord.http.asgi import App, Receive, Scope, Send
from accord.testing import Response, call

AGENT = "Mozilla/5.0 (of the tests)"
HOST = "localhost:8000"


class Browser:
    """Somebody's browser; `page` is the origin that it is at, None is a program that has its cookies."""

    def __init__(self, app: App, host: str = HOST, scheme: str = "http", peer: str = "127.0.0.1") -> None:
        self.cookies: dict[str, str] = {}
        self.flags: dict[str, str] = {}
        self._app = app
        self._host = host
        self._scheme = scheme
        self._peer = peer
        self.page: str | None = f"{scheme}://{host}"

    async def __call__(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Response:
        """Ask, as a page's `fetch` does."""
        sent = {"Host": self._host, "User-Agent": AGENT} | (
            {} if body is None else {"Content-Type": "application/json"}
        )
        if self.page is not None:
            own = self.page == f"{self._scheme}://{self._host}"
            sent |= {"Sec-Fetch-Site": "same-origin" if own else "cross-site", "Sec-Fetch-Mode": "cors"}
            sent |= {"Origin": self.page} if method not in ("GET", "HEAD") or not own else {}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        data = b"" if body is None else json.dumps(body).encode()
        answer = await call(self._asked, data, method=method, path=path, query=query, headers=sent | headers)
        self._keep(answer)
        return answer

    async def visit(self, path: str, query: str = "", **headers: str) -> Response:
        """Open an address, as somebody who follows a link from elsewhere does: strict cookies stay at home."""
        strict = {name: value for name, value in self.cookies.items() if "SameSite=Strict" in self.flags[name]}
        for name in strict:
            del self.cookies[name]
        page, self.page = self.page, None
        told = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
        try:
            return await self("GET", path, None, query, **told | headers)
        finally:
            self.page = page
            self.cookies = strict | self.cookies

    async def sign_in(self, **credentials: str) -> Response:
        return await self("POST", "/api/session", credentials)

    async def who(self) -> str | None:
        """The name of whoever is signed in."""
        found = (await self("GET", "/api/session")).json()
        return found["name"] if found["signedIn"] else None

    def _keep(self, answer: Response) -> None:
        for line in answer.headers.get("set-cookie", "").split(", "):
            for name, morsel in SimpleCookie(line).items():
                self.flags[name] = line
                if morsel["max-age"] == "0":
                    self.cookies.pop(name, None)
                else:
                    self.cookies[name] = morsel.value

    async def _asked(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "scheme": self._scheme, "client": (self._peer, 50000)}, receive, send)
