"""Behaves in the ways that the suite of all kinds of agents has names for, and keeps sessions in its scratch folder.

Without a terminal it prints events, one in each line; with one it is a command for people.
"""

import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

behaviour, scratch, *more = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
is_terminal = os.isatty(0)


def tell(kind: str, **event: Any) -> None:
    if not is_terminal:
        print(json.dumps({"type": kind, **event}), flush=True)
    elif kind == "text":
        print(event["text"], end="", flush=True)


def mark(name: str, text: str) -> None:
    with (scratch / name).open("a") as file:
        file.write(text)


def held() -> None:
    until = time.monotonic() + 60
    while not (scratch / "go").exists() and time.monotonic() < until:
        time.sleep(0.05)


session = more[1] if more[:1] == ["--resume"] else uuid.uuid4().hex
file = scratch / f"session-{session}"
known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"said": [], "done": []}
if is_terminal:
    print(flush=True)  # ready
said = input() if is_terminal else sys.stdin.read()
known["said"].append(said)
file.write_text(json.dumps(known))
tell("session", id=session)
if behaviour == "echo":
    tell("text", text=f"you said {said}")
elif behaviour == "stream":
    for word in ("one ", "two ", "three "):
        tell("text", text=word)
elif behaviour == "held":
    tell("text", text="one ")
    held()
    tell("text", text="two ")
elif behaviour == "remember":
    tell("text", text=" ".join(known["said"]))
elif behaviour == "slow":
    while True:
        mark("beats", ".")
        time.sleep(0.05)
elif behaviour == "fail":
    print("no such city", file=sys.stderr)
    sys.exit(3)
elif behaviour == "ask" and is_terminal:
    tell("text", text=f"to {input('Which city? ')}")
elif behaviour == "ask" and "The answer is: " in said:
    tell("text", text="to " + said.rpartition("The answer is: ")[2])
elif behaviour == "ask":
    tell("ask", text="Which city?")
elif behaviour == "file":
    for given in Path(os.environ["TASK_INBOX"]).iterdir():
        Path(os.environ["TASK_OUTBOX"], given.name).write_bytes(given.read_bytes() + b"!")
elif behaviour == "usage":
    tell("usage", input_tokens=7, output_tokens=5)
elif behaviour == "steps":
    for number in (1, 2, 3):
        if number not in known["done"]:
            mark("steps", f"{number}\n")
            tell("status", text=f"step {number}")
            if number == 2:
                held()
            known["done"].append(number)
            file.write_text(json.dumps(known))
    tell("text", text="done")
