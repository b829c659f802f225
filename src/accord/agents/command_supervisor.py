"""A process that supervises one command, so that nothing outlives its task.

It is run by its path as a separate process, and imports only the standard library. It starts the command in a new
session and is the subreaper of all its descendants, even those that left its process group. All of them are ended when
the command ends or the server closes its end of the socket, for example by dying. The process that starts it
(`subprocesses`) reads lines: `started PID`, `refused ERRNO` or `exited STATUS`.
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
"""Interval of checks that the server is still the parent. A socket that another process holds open does not show it."""

AGAIN_SECONDS = 0.05
"""Delay before killing again, for processes that were started while the others were killed."""


class CommandSupervisor:
    """One command and all its descendants."""

    def __init__(self, control: int, grace: float) -> None:
        """Report to the server over `control`; descendants have `grace` seconds to end after SIGTERM."""
        os.set_inheritable(control, False)  # the command must not inherit it
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
        """Run a command until it and its descendants have ended."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        if not self._start(argv, has_terminal):
            return
        while self._reap():
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._signal(signal.SIGKILL)
            self._wait()

    def _start(self, argv: list[str], has_terminal: bool) -> bool:
        """Start the command, and report its PID or the error."""
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
            self._report(f"refused {reason}")
            return False
        self._report(f"started {self._command}")
        return True

    def _reap(self) -> bool:
        """Reap ended processes, and return whether any descendant is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._command:
                self._has_exited = True
                self._report(f"exited {os.waitstatus_to_exitcode(status)}")
                self._end()  # with the processes that it has left behind

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
        """Send SIGTERM to all descendants, and schedule SIGKILL."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process would not receive SIGTERM

    def _signal(self, number: int) -> None:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or not ours any more
                os.kill(pid, number)
        if self._command and not self._has_exited:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._command, number)

    def _report(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the server is gone, which `_wait` detects
            os.write(self._control, line.encode() + b"\n")


def descendants(ancestor: int) -> list[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    pids, queue = [], [ancestor]
    while queue:
        below = children.pop(queue.pop(), [])
        pids += below
        queue += below
    return pids


def _parents() -> list[tuple[int, int]]:
    """Return all processes, each with its parent."""
    if not os.path.isdir("/proc/self"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)
        pairs = (line.split() for line in listed.stdout.splitlines())
        return [(int(pid), int(parent)) for pid, parent in pairs]
    processes = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # it may be gone by now
                processes.append((int(name), int(stat.read().rpartition(b")")[2].split()[1])))
    return processes


def _become(argv: list[str], has_terminal: bool, refusing: int) -> None:
    """Become the command in a new session; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec keeps ignored signals ignored
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if has_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # in case the supervisor itself is killed
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(refusing, str(error.errno or 1).encode())
    finally:
        os._exit(127)


def _prctl(option: int, value: int) -> None:
    """Call `prctl` on Linux; other systems lack it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    control, grace, has_terminal, *argv = sys.argv[1:]
    CommandSupervisor(int(control), float(grace)).keep(argv, has_terminal == "1")
