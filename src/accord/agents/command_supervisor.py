"""A process that supervises one command, so that nothing outlives its task.

It is run by its path, as a process of its own, and imports nothing but the standard library. It starts the command in a
new session and is the subreaper of all its descendants, also of those that left its process group. When the command has
ended, or the server closes its end of the socket, by dying if need be, all of them are ended too. The process that
starts it (`process.subprocesses`, `relay.runner`) reads lines: `started PID`, `refused ERRNO` or `exited STATUS`.
"""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h

LOOK_SECONDS = 1.0
"""How often to look whether the server is still the parent: a socket that something else holds open does not say so."""

AGAIN_SECONDS = 0.05
"""How long to wait before killing again what was started while the others were killed."""


class CommandSupervisor:
    """One command and everything that comes of it."""

    def __init__(self, control: int, grace: float) -> None:
        """Answer to the server at the other end of `control`; what is to end has `grace` seconds for it."""
        os.set_inheritable(control, False)  # the command has no business with it
        self._control = control
        self._grace = grace
        self._server = os.getppid()
        self._command = 0
        self._has_exited = False
        self._kill_at: float | None = None
        self._wake, waking = os.pipe()
        for end in (self._wake, waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._end())

    def keep(self, argv: list[str], has_terminal: bool) -> None:
        """Run a command until nothing of it is left."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if not self._start(argv, has_terminal):
            return
        while self._reap():
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
            self._wait()

    def _start(self, argv: list[str], has_terminal: bool) -> bool:
        """Start the command, and say so, or why not."""
        refusal, refusing = os.pipe()  # closed by a successful exec
        self._command = os.fork()
        if self._command == 0:
            _become(argv, has_terminal, refusing)
        os.close(refusing)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # or the server would never see the end of them
            os.dup2(null, stream)
        with os.fdopen(refusal, "rb") as reasons:
            reason = reasons.read().decode()
        if reason:
            os.waitpid(self._command, 0)
            self._say(f"refused {reason}")
            return False
        self._say(f"started {self._command}")
        return True

    def _reap(self) -> bool:
        """Bury the dead, and return whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._has_exited = True
                self._say(f"exited {os.waitstatus_to_exitcode(status)}")
                self._end()  # what it has left behind as well

    def _wait(self) -> None:
        """Wait until something may have happened."""
        seconds = LOOK_SECONDS
        if self._kill_at is not None:
            seconds = max(AGAIN_SECONDS, self._kill_at - time.monotonic())
        watched = [self._wake] if self._kill_at is not None else [self._wake, self._control]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._control in ready or os.getppid() != self._server:
            self._end()

    def _end(self) -> None:
        """Begin to end everything."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # or whoever is stopped would not hear it

    def _signal(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or not ours any more
                os.kill(pid, number)
        if self._command and not self._has_exited:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._command, number)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the server is gone, which is looked for elsewhere
            os.write(self._control, line.encode() + b"\n")


def descendants(ancestor: int) -> list[int]:
    """Return every process below another one."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found, queue = [], [ancestor]
    while queue:
        below = children.pop(queue.pop(), [])
        found += below
        queue += below
    return found


def _parents() -> list[tuple[int, int]]:
    """Return every process with its parent."""
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
        pairs = (line.split() for line in listed.stdout.splitlines())
        return [(int(pid), int(parent)) for pid, parent in pairs]
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # it may be gone by now
                found.append((int(name), int(stat.read().rpartition(b")")[2].split()[1])))
    return found


def _become(argv: list[str], has_terminal: bool, refusing: int) -> None:
    """Become the command, in a session of its own; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored stays so
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the keeper be killed itself
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(refusing, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> None:
    """Ask Linux for something; other systems have it not."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    control, grace, has_terminal, *argv = sys.argv[1:]
    CommandSupervisor(int(control), float(grace)).keep(argv, has_terminal == "1")
