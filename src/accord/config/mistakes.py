"""All that is wrong in a file of settings and in variables, for whoever mends it: reading stops at the first mistake.

Each section is read by itself, and again without what was wrong in it. `accord config check` stands above.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accord.config.files import BadSettings, Found
from accord.config.load import Sourced, from_env, put_together, referred
from accord.config.variables import unread

_MISSING = "missing required field"
"""What is said of a group where something is needed; it may be what was left out for being wrong."""


def mistakes(file: Found | None, env: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong, in the order of the file's sections; then variables that nobody can read, or nobody does."""
    given: list[Sourced] = []
    if file is not None:
        given += [(file.source, {name: value}) for name, value in file.table.items()]
    unreadable = []
    for variable in sorted(env):
        try:
            given += from_env({variable: env[variable]})
        except BadSettings as error:
            unreadable.append(str(error))
    for section in dict.fromkeys(name for _, table in given for name in table):
        yield from _in_section(section, [one for one in given if section in one[1]], env)
    yield from unreadable
    yield from map(str, unread(env, referred(given)))


def _in_section(section: str, given: list[Sourced], env: Mapping[str, str]) -> Iterator[str]:
    left: list[Sourced] | None = given
    while left:
        try:
            put_together(left, env)
        except BadSettings as error:
            if left is not given and _MISSING in str(error):
                return
            yield str(error)
            left = _without(section, left, str(error))
        else:
            return


def _without(section: str, given: list[Sourced], said: str) -> list[Sourced] | None:
    """Return what is given without the setting that a refusal is about, or None if nothing smaller can be left out."""
    at = next((at for at, (source, _) in enumerate(given) if said.startswith(f"{source}: ")), None)
    if at is None:
        return None
    source, table = given[at]
    rest = _less(section, table[section], said.removeprefix(source))
    return [*given[:at], *([] if rest is None else [(source, {section: rest})]), *given[at + 1 :]]


def _less(section: str, value: Any, said: str) -> dict[str, Any] | None:
    named = re.search(rf"(?<![\w.]){re.escape(section)}\.([\w-]+)", said)
    if named is None or not isinstance(value, dict) or named[1] not in value:
        return None
    return {key: kept for key, kept in value.items() if key != named[1]}
