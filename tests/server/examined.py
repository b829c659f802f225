"""What a doctor finds about a server with settings."""

import os
from typing import Any

from accord.server import doctor
from accord.server.doctor_checks import CheckFinding, CheckStatus
from accord.server.settings_loader import LoadedSettings, settings_of
from tests.ports import free_port

ECHO = "accord.agents.echo:echo"
OK, WARNING, FAILED = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.FAILED


class Examined:
    """What was found, by what was looked at."""

    def __init__(self, found: list[CheckFinding]) -> None:
        self.found = found

    def __getitem__(self, check: str) -> list[tuple[CheckStatus, str]]:
        return [(one.status, one.detail) for one in self.found if one.check == check]

    def one(self, check: str) -> tuple[CheckStatus, str]:
        (found,) = self[check]
        return found

    @property
    def failed(self) -> list[str]:
        return [one.check for one in self.found if one.status is FAILED]


async def examined(*targets: str, seconds: float = 30.0, env: dict[str, str] | None = None, **said: Any) -> Examined:
    """Examine a server with settings, on a port of its own and a store in the working directory."""
    said.setdefault("store", "sqlite:///accord.db")
    said.setdefault("server", {}).setdefault("port", free_port())
    loaded = LoadedSettings(settings_of(said, "test", env or {}), {})
    home = {"HOME": os.getcwd(), "XDG_DATA_HOME": os.getcwd()}
    found = Examined(await doctor.examine(loaded, targets or (ECHO,), home | (env or {}), seconds))
    assert [one for one in found.found if one.status is not OK and not one.remedy] == [], "each has a remedy"
    assert [one for one in found.found if "\n" in one.detail + (one.remedy or "")] == [], "each is a line"
    return found
