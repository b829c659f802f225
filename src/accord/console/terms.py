"""The settings of the console."""

from typing import Annotated

from msgspec import Meta

from accord.auth.scheme_settings import Settings


class Terms(Settings, frozen=True, kw_only=True):
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
