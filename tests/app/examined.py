"""What a doctor finds about a server with settings."""

import os
from typing import Any

from accord.app.doctor import examination
from accord.app.doctor.findings import Finding, Status
from accord.config.load import Loaded, settings_of
from tests.ports import free_port

ECHO = "accord.agents.echo:echo"
OK, WARNING, FAILED = Status.OK, Status.WARNING, Status.FAILED


class Examined:
    """What was found, by what was looked at."""

    def __init__(self, found: list[Finding]) -> None:
        self.found = found

    def __getitem__(self, check: str) -> list[tuple[Status, str]]:
        return [(one.status, one.detail) for one in self.found if one.check == check]

    def one(self, check: str) -> tuple[Status, str]:
        (found,) = self[check]
        return found

    @property
    def failed(self) -> list[str]:
        return [one.check for one in self.found if one.status is FAILED]


async def examined(*targets: str, seconds: float = 30.0, env: dict[str, str] | None = None, **said: Any) -> Examined:
    """Examine a server with settings, on a port of its own and a store in the working directory."""
    said.setdefault("store", "sqlite:///accord.db")
    said.setdefault("server", {}).setdefault("port", free_port())
    loaded = Loaded(settings_of(said, "test", env or {}), {})
    home = {"HOME": os.getcwd(), "XDG_DATA_HOME": os.getcwd()}
    found = Examined(await examination.examine(loaded, targets or (ECHO,), home | (env or {}), seconds))
    assert [one for one in found.found if one.status is not OK and not one.remedy] == [], "each has a remedy"
    assert [one for one in found.found if "\n" in one.detail + (one.remedy or "")] == [], "each is a line"
    return found
