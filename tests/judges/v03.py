"""What the official 0.3 SDK says about JSON that we write; run by an interpreter that has it.

One line in: `{"type": "Task", "json": {...}, "strict": true}`, one line out: `{"ok": true}` or why not. A type is a
pydantic model of `a2a.types`, `list[...]` of one, or, after `pb:`, a message of its protobuf definition. Strict refuses
members that the SDK does not know; protobuf always does.
"""

import json
import sys
from typing import Any

from a2a import types
from a2a.grpc import a2a_pb2
from google.protobuf.json_format import ParseDict
from pydantic import TypeAdapter


def judge(kind: str, document: Any, strict: bool) -> None:
    """Raise if the SDK refuses the document."""
    if kind.startswith("pb:"):
        ParseDict(document, getattr(a2a_pb2, kind.removeprefix("pb:"))())
        return
    many = kind.startswith("list[")
    adapter: TypeAdapter[Any] = TypeAdapter(getattr(types, kind[5:-1] if many else kind))
    for one in document if many else [document]:
        adapter.validate_python(one, extra="forbid" if strict else None)


def main() -> None:
    """Answer every line."""
    for line in sys.stdin:
        try:
            case = json.loads(line)
            judge(case["type"], case["json"], case.get("strict", True))
            answer: dict[str, Any] = {"ok": True}
        except Exception as error:  # whatever is wrong, the test that asked must see it
            answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
