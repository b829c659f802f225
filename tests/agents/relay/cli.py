"""A stand-in for a command-line agent: it reads what it is asked and prints an answer, or misbehaves if it is told to.

Its folder, the first argument, shows what it does: `pids` of itself and of what it starts, `beats` while it works.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def note(folder: Path, pid: int) -> None:
    with (folder / "pids").open("a") as file:
        file.write(f"{pid}\n")


def ancestors_with(word: bytes) -> set[str]:
    """The processes above this one in whose environment a word can be read."""
    found, pid = set(), os.getppid()
    while pid > 1:
        try:
            if word in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(Path(f"/proc/{pid}/cmdline").read_text())
        except PermissionError:
            pass
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def main() -> int:
    folder = Path(sys.argv[1])
    asked = sys.argv[2] if len(sys.argv) > 2 else sys.stdin.read()
    note(folder, os.getpid())
    if asked.startswith("fail"):
        print("Traceback: much to see here\nno such city", file=sys.stderr)
        return 3
    if asked.startswith("slow"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for leaves in (False, True):  # one that stays in its group, and one that does not
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=leaves)
            note(folder, child.pid)
        while True:
            with (folder / "beats").open("ab") as file:
                file.write(b".")
            time.sleep(0.05)
    while asked.startswith("flood"):
        print("x" * 100_000, flush=True)
        (folder / "beats").write_text("..")
    if asked.startswith("much"):
        print("x" * 3_000_000)
        return 0
    if asked.startswith("env"):
        print(",".join(sorted(name for name in os.environ if name.startswith(("RELAY_", "ACCORD_", "PGPASS")))))
        return 0
    if asked.startswith("look"):
        print(",".join(sorted(ancestors_with(b"RELAY_API_KEY="))) or "nothing")
        return 0
    print(" ".join(["you said", asked, *sys.argv[3:]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
