"""A program for people at terminals: it paints what it is told, works, and stays until it is ended.

The first argument says what it does: `done` ends with the marker, `decides` with a decision, `quiet` says nothing any
more, `nudged` goes on when it is reminded, `exits` ends by itself.
"""

import os
import sys
import time

assert os.isatty(0), "this is for people"
what = sys.argv[1]
told: list[str] = []
print("\x1b[1mready\x1b[0m")
while "without blanks" not in "".join(told) and "end of task" not in "".join(told):
    told.append(input())
for line in told:
    print(f"\x1b[2m│ > {line} │\x1b[0m")
print(f"working in {os.getcwd()}", flush=True)
if what == "done":
    print("it is built\n\x1b[32mSTEP_COMPLETE:build\x1b[0m", flush=True)
elif what == "decides":
    print("OWNER_DECISION: INCOMPLETE_RETRY\nREASON: the disk is full", flush=True)
elif what == "nudged":
    reminder = input()
    time.sleep(4)  # longer than it may be silent before it is reminded
    print(f"reminded: {reminder}\nSTEP_COMPLETE:build", flush=True)
if what != "exits":
    time.sleep(1000)
