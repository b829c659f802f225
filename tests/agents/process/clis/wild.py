"""Does not want to end: ignores what asks it to, and has children that have left its group and its session.

Says the ids of all its processes, then works on: `beats` in the directory that it is given grows meanwhile.
"""

import os
import signal
import sys
import time
from pathlib import Path


def work() -> None:
    while True:
        with open(beats, "ab") as file:
            file.write(b".")
        time.sleep(0.05)


beats = Path(sys.argv[1], "beats")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
read, write = os.pipe()
if os.fork() == 0:  # a child, whose child leaves the session and is an orphan at once
    os.setsid()
    if os.fork() == 0:
        os.write(write, f"{os.getpid()}\n".encode())
        work()
    os._exit(0)
if os.fork() == 0:  # a child in the group
    os.write(write, f"{os.getpid()}\n".encode())
    work()
pids = b""
while pids.count(b"\n") < 2:
    pids += os.read(read, 100)
print(" ".join(str(pid) for pid in (os.getpid(), *map(int, pids.split()))), flush=True)
work()
