"""Ports for servers that are told their port before they listen.

The system's own choice would be given to anybody else who asks before such a server is up, or while it is down between
two starts: to any connection that goes out, and to tests in other processes. These come from below what the system
gives out, and each process of a test run has a part of them for itself.
"""

import itertools
import os
import random
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

LOWEST = 10_000
_GIVEN_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _mine() -> range:
    """What is this process's own of the ports below those that the system gives out."""
    end = int(_GIVEN_OUT.read_text().split()[0]) if _GIVEN_OUT.exists() else 32_768
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    each = (end - LOWEST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return range(LOWEST + number * each, LOWEST + (number + 1) * each)


def _in_turn() -> Iterator[int]:
    """From anywhere, so that two runs at once seldom meet."""
    mine = _mine()
    first = random.randrange(len(mine))
    return itertools.cycle([*mine[first:], *mine[:first]])


_ports = _in_turn()


def free_port() -> int:
    """A port that is free on every address: one of 127.0.0.1 may still be in use on others."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
