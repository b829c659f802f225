"""Environment variables of commands: common, withheld and secret ones.

Process agents, workflow steps, git, verification, preflight and relay agents take their variables from here. Nothing is
started here. This module also closes the server's own `/proc` entries.
"""

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

PR_SET_DUMPABLE = 4  # linux/prctl.h

SERVER_VARIABLES = re.compile(r"ACCORD_.*|AGENTVAULT_(KEY|TOKEN|OAUTH)_.*|PGPASSWORD|PGPASSFILE")
"""Names of the server's own variables: its settings, the password of its store, and its credentials."""

COMMON_VARIABLES = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TERM|TMPDIR|TZ")
"""Names of the server's variables that every command inherits; none of them is ever a secret."""


class Environment(dict[str, str]):
    """The server's environment.

    No command inherits `withheld` variables, and a running server does not need `secrets`.
    """

    def __init__(
        self, variables: Mapping[str, str], withheld: Collection[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        """Copy the variables; settings refer to those in `withheld`, and only settings need those in `secrets`."""
        super().__init__(variables)
        self.withheld, self.secrets = frozenset(withheld), frozenset(secrets)


def document_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a document may name: neither the server's own nor those in its settings."""
    withheld = env.withheld if isinstance(env, Environment) else ()
    return {name: value for name, value in env.items() if not SERVER_VARIABLES.fullmatch(name) and name not in withheld}


def command_variables(env: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """Return the variables of a command: the common ones and those in `more`, but never the server's own."""
    return {
        name: value
        for name, value in env.items()
        if (COMMON_VARIABLES.fullmatch(name) or name in more) and not SERVER_VARIABLES.fullmatch(name)
    }


# --- the server's own process -----------------------------------------------------------------------------------------

_dropped: dict[str, str] = {}
"""Variables removed from this process's environment, with their values."""


def close_process(env: Mapping[str, str] | None = None) -> None:
    """Keep commands from reading this process's memory and environment, and drop the secrets of `env` from it.

    On Linux, `/proc/PID/environ` and `/proc/PID/mem` then belong to root, debuggers of the same user cannot attach, and
    the process leaves no core dump. Programs that it starts with `exec` are not protected.
    """
    for name in env.secrets if isinstance(env, Environment) else ():
        if (value := os.environ.pop(name, None)) is not None:
            _dropped[name] = value
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def environment_of_process() -> dict[str, str]:
    """Return the original environment of this process with later changes, and with dropped secrets."""
    return {**_dropped, **os.environ}


def has_command(command: str, env: Mapping[str, str], directory: str | Path | None) -> bool:
    """Whether a command can be started from a directory.

    A relative command is accepted if the directory is not known.
    """
    place = os.path.expanduser(directory) if directory is not None else None
    if os.sep in command and not os.path.isabs(command):
        if place is None:
            return True
        command = os.path.join(place, command)
    return shutil.which(command, path=env.get("PATH", os.defpath)) is not None
