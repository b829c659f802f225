"""The page of events: the name of every record that a server writes, and what it says."""

from accord.telemetry.logs import EVENTS

HEAD = """# Events in the log

This page is written by [generate.py](generate.py) from the table that the log uses,
[`telemetry.logs`](../../src/accord/telemetry/logs.py).

Every record that a server writes has a name, `event` in [JSON](../how-to/operations.md#what-is-written-down). A
sentence may be improved; its name stays. Two sentences may have one name. `%s` stands for what is filled in.

| event | what it says |
| --- | --- |
"""


def page() -> str:
    """Return the page."""
    return HEAD + "".join(f"| `{name}` | {sentence} |\n" for sentence, name in EVENTS.items())
