"""Behaves like `goose session`: a session under the name that it is given, and a question before it does something."""

import sys


def pasted(question: str) -> str:
    text = input(f"\x1b[?2004h{question}")
    if text.startswith("\x1b[200~"):
        while not text.endswith("\x1b[201~"):
            text += "\n" + input()
    return text.removeprefix("\x1b[200~").removesuffix("\x1b[201~")


assert sys.argv[1] == "session", sys.argv
name = sys.argv[sys.argv.index("--name") + 1]
print(f"session {name}")
if "--resume" in sys.argv:
    print("resumed: " + pasted("( O)> "))
else:
    print("told: " + pasted("( O)> "))
    print("Goose would like to call rm")
    print("Goose got " + input("Allow? "))
