"""Writes what the code knows: settings with their schema, commands, errors and events of the log, beside this file.

Run `python -m docs.reference.generate` after a setting, a flag, an error or a record has changed; a test fails until
then. Each page is a module beside this one; how-to pages have the prose.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from accord.server import settings_schema
from docs.reference import commands, errors, events, settings

FOLDER = Path(__file__).parent

PAGES: Mapping[str, Callable[[], str]] = {
    "configuration.md": settings.page,
    settings_schema.SCHEMA_FILE: lambda: settings_schema.schema_document(settings_schema.own_agent_types()),
    "cli.md": commands.page,
    "errors.md": errors.page,
    "events.md": events.page,
}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
