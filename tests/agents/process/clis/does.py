"""A plain command: its arguments say what it does with the prompt on its standard input."""

import json
import os
import sys
import time
from pathlib import Path

what, *more = sys.argv[1:]
if what == "echo":
    print(f"\x1b[1myou said\x1b[0m {sys.stdin.read()}")
elif what == "arguments":
    print(json.dumps(more))
elif what == "fail":
    print("a first line\n\x1b[31mno such city\x1b[0m", file=sys.stderr)
    sys.exit(3)
elif what == "environment":
    print(json.dumps(dict(os.environ)))
elif what == "flood":
    while True:
        print("x" * 1000, flush=True)
elif what == "hang":
    sys.stdin.read()
    time.sleep(1000)
elif what == "words":
    print("one", flush=True)
    time.sleep(1000)
elif what == "files":
    for path in sorted(Path(os.environ["TASK_INBOX"]).iterdir()):
        Path(os.environ["TASK_OUTBOX"], path.name).write_bytes(path.read_bytes() + b"!")
    os.symlink("/etc/hostname", Path(os.environ["TASK_OUTBOX"], "link"))
    print(sys.stdin.read())
elif what == "commit":
    Path("new.txt").write_text("new")
    if "--commit" in more:
        os.system("git add new.txt && git -c user.name=a -c user.email=a@example.org commit --quiet -m new")
    print(os.getcwd())
elif what == "lines":
    said = sys.stdin.read()
    if "The answer is" in said:
        print(json.dumps({"type": "text", "text": "to " + said.rpartition("The answer is: ")[2]}))
    else:
        print(json.dumps({"type": "usage", "input_tokens": 7, "output_tokens": 5}))
        print(json.dumps({"type": "ask", "text": "Which city?"}))
elif what == "leave":
    if os.fork() == 0:  # keeps the output open, and would for long
        os.setsid()
        time.sleep(1000)
    print("done")
