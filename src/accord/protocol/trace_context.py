"""The context of a trace, as W3C's Trace Context writes it: two headers on the wire, one text where it is kept.

It invents no ids and records nothing; that is `telemetry.tracing`. Whoever sends or receives requests stands above.
"""

import re
from collections.abc import Mapping

PARENT, STATE = "traceparent", "tracestate"
"""The headers; a process that is started finds them in its environment, in capitals."""

MAX_STATE = 512
"""Characters of vendors' state that have to be passed on (3.3.1.5); more is left out, the trace goes on without."""

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]*")


def joined(parent: str | None, state: str | None = None) -> str | None:
    """Return both as one text; None if there is no valid parent, without which a state means nothing."""
    if parent is None or not _PARENT.fullmatch(parent):
        return None
    if not state or len(state) > MAX_STATE or not _STATE.fullmatch(state):
        return parent
    return f"{parent} {state}"


def headers(trace: str | None) -> Mapping[str, str]:
    """Return the headers that pass a trace on; none for none."""
    if trace is None:
        return {}
    parent, _, state = trace.partition(" ")
    return {PARENT: parent, STATE: state} if state else {PARENT: parent}


def variables(trace: str | None) -> Mapping[str, str]:
    """Return the same for the environment of a process."""
    return {name.upper(): value for name, value in headers(trace).items()}


def ids(trace: str | None) -> tuple[str, str] | None:
    """Return the ids of the trace and of the span, as records name them."""
    found = None if trace is None else _PARENT.match(trace)
    return None if found is None else (found["trace"], found["span"])
