"""What AgentVault's own models say about JSON that we write; run by an interpreter that has them.

One line in: `{"type": "Task", "json": {...}, "strict": true}`, one line out: `{"ok": true}` or why not. A type is a
model of `agentvault.models`. Strict refuses members that the model does not have, at any depth.
"""

import json
import sys
from typing import Any

from agentvault import models


def judge(kind: str, document: Any, strict: bool) -> None:
    """Raise if the model of that name refuses the document."""
    if kind == "TaskSendParams" and isinstance(document.get("webhookUrl"), str):
        # The profile has it (4.1) and AgentVault's client sends it, but the published model forgot it.
        document = {name: value for name, value in document.items() if name != "webhookUrl"}
    getattr(models, kind).model_validate(document, extra="forbid" if strict else None)


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
