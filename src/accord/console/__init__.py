"""The console: an HTTP API beside A2A, under `/api`.

This module has its settings and path prefixes. The console reads HTTP and shapes answers; `core` decides what they
mean. `app` serves it.
"""

from typing import Annotated

from msgspec import Meta

from accord.auth.scheme_settings import Settings


class ConsoleSettings(Settings, frozen=True, kw_only=True):
    """The console of a server: its pages under `/console/` and what they ask, under `/api/`."""

    enabled: bool = True
    """Whether there is one."""

    a2a: bool = True
    """Whether chats offer remote agents; agents of this server are always offered."""

    task_mode: bool | None = None
    """Whether every chat gets an acknowledgement and a task that goes on by itself; left out, that is so for agents
    elsewhere, and others answer while one waits."""

    session_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = 24.0
    """How long whoever has signed in stays so."""


API = "/api/v1/"
"""Below it the registry is."""

HOOKS = "/hooks/"
"""Below it runs of workflows begin."""

RUNS = "/api/runs/"
"""Below it runs of workflows are."""

PAGES = "/console/"
"""Below it the console's own pages are."""

CONSOLE = "/api/"
"""Below it is what those pages ask, where nothing else is."""

EVENTS = "/api/events"
"""Where pages hear of news."""

SESSIONS = "/api/session"
"""Where people sign in."""

SIGNIN = "/signin"
"""The page for that, below the others."""

PREFIXES = (API, HOOKS, RUNS, PAGES, CONSOLE)
"""The more exact ones first."""
