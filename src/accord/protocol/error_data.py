"""Reading the `data` of an error as `Dialect.error_data` writes it: flat, with the name of the reason.

Strangers put anything there, so a member counts only when it has the expected type. A2A 1.0's typed details are not
read here; they are that dialect's own.
"""

from typing import Any

from accord.errors import TABLE, AccordError, Violation, for_code, for_reason
from accord.protocol.jsonrpc import ErrorObject

_FIELDS = frozenset({"reason", "violations", "retry_after"})


def read_error(error: ErrorObject, column: str, likely: type[AccordError] | None = None) -> AccordError:
    """Return the error that `data.reason` names if that fits the code, else `likely`, else what the code means.

    `column` is the dialect's column in the table of errors. A code that is not the error's own is kept as a fact.
    """
    data = error.data if isinstance(error.data, dict) else {}
    kind = for_reason(str(data.get("reason")))
    if kind is None or getattr(TABLE[kind], column) != error.code:
        kind = likely or for_code(error.code, column)
    own = getattr(TABLE[kind], column) == error.code
    return from_facts(kind, error.message, data if own else data | {"code": str(error.code)})


def from_facts(kind: type[AccordError], message: str, data: dict[str, Any]) -> AccordError:
    """Make an error from its sentence and flat data."""
    stated = data.get("violations")
    violations = tuple(
        Violation(str(item.get("field", "")), str(item.get("description", "")))
        for item in (stated if isinstance(stated, list) else ())
        if isinstance(item, dict)
    )
    seconds = data.get("retry_after")
    return kind(
        message,
        violations=violations,
        retry_after=seconds if isinstance(seconds, int) and not isinstance(seconds, bool) else None,
        metadata={key: value for key, value in data.items() if key not in _FIELDS and isinstance(value, str)},
    )
