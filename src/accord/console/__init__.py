"""The console: an HTTP API beside A2A, under `/api`.

This module has its settings and path prefixes. The console reads HTTP and builds responses. `core` defines their
meaning. `server` serves it.
"""

from typing import Annotated

from msgspec import Meta

from accord.api import MaskedSettings


class ConsoleSettings(MaskedSettings, frozen=True, kw_only=True):
    """Settings of the console: its pages under `/console/` and its API under `/api/`."""

    enabled: bool = True
    """Whether the console is served."""

    a2a: bool = True
    """Whether chats offer remote agents. Agents of this server are always offered."""

    task_mode: bool | None = None
    """Whether chats answer with an acknowledgement and a background task [default: only for remote agents]."""

    session_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = 24.0
    """Duration of a sign-in session, in hours."""


API = "/api/v1/"
"""Path prefix of the registry API."""

HOOKS = "/hooks/"
"""Path prefix of the webhook endpoints that start workflow runs."""

RUNS = "/api/runs/"
"""Path prefix of workflow runs."""

PAGES = "/console/"
"""Path prefix of the console's pages."""

CONSOLE = "/api/"
"""Path prefix of the console API. Nothing else is served below it."""

EVENTS = "/api/events"
"""Path of the live feed."""

SESSIONS = "/api/session"
"""Path of the sign-in API."""

SIGNIN = "/signin"
"""Path of the sign-in page, below `PAGES`."""

PREFIXES = (API, HOOKS, RUNS, PAGES, CONSOLE)
"""All path prefixes, the more specific ones first."""
