"""All that is wrong in a file of settings, for whoever mends it: reading stops at the first mistake, as it should.

Each section is read by itself, and again without what was wrong in it. `accord config check` stands above.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from accord.config.files import BadSettings, Found
from accord.config.load import settings_of


def mistakes(file: Found, env: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong in a file, in the order of its sections."""
    for name, value in file.table.items():
        yield from _in_section(name, value, file.source, env)


def _in_section(name: str, value: Any, source: str, env: Mapping[str, str]) -> Iterator[str]:
    while True:
        try:
            settings_of({name: value}, source, env)
        except BadSettings as error:
            yield str(error)
            value = _without(name, value, str(error).removeprefix(source))
            if value is None:
                return
        else:
            return


def _without(name: str, value: Any, said: str) -> dict[str, Any] | None:
    """Return a section without the setting that a refusal is about, or None if nothing smaller can be left out."""
    named = re.search(rf"(?<![\w.]){re.escape(name)}\.([\w-]+)", said)
    if named is None or not isinstance(value, dict) or named[1] not in value:
        return None
    return {key: kept for key, kept in value.items() if key != named[1]}
