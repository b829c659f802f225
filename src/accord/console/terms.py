"""The settings of the console."""

from typing import Annotated

from msgspec import Meta

from accord.core.schemes.settings import Settings


class Terms(Settings, frozen=True, kw_only=True):
    """The console of a server: its pages under `/console/` and what they ask, under `/api/`.

    `a2a` is whether agents are offered in chats at all. With `task_mode` every chat gets an acknowledgement and a task
    that goes on by itself; without one, true or false, that is so for agents elsewhere, and others answer while one
    waits. Whoever has signed in stays so for `session_hours`.
    """

    enabled: bool = True
    a2a: bool = True
    task_mode: bool | None = None
    session_hours: Annotated[float, Meta(gt=0, le=24 * 90)] = 24.0
