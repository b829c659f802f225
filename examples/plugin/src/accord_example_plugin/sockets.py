"""A carrier of hints: the processes of one machine, each with a socket in a common directory.

The address is `sockets:///run/accord`. Whoever has something to say sends it to every other socket there; a socket
that nobody listens to any more was left behind by a process that died, and is removed.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from accord.api import Carrier, CarrierType, Hear, Location, StoreRefused

END = ".hints"


class Sockets(Carrier):
    """Carries hints between the processes that have a socket in a directory."""

    name = "sockets"
    payload_bytes = 8_000

    def __init__(self, folder: Path, heard: Hear) -> None:
        super().__init__(heard)
        self._folder = folder

    async def _talk(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}{END}"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            sock.bind(str(own))
            loop.add_reader(sock, self._receive, sock)
            self._is_up()
            while True:
                for payload in await self._next():
                    self._send(sock, own, payload.encode())
        finally:
            loop.remove_reader(sock)
            sock.close()
            own.unlink(missing_ok=True)

    def _receive(self, sock: socket.socket) -> None:
        self._arrived(sock.recv(self.payload_bytes).decode(errors="replace"))

    def _send(self, sock: socket.socket, own: Path, payload: bytes) -> None:
        for other in self._folder.glob(f"*{END}"):
            if other == own:
                continue  # what is said here was heard here before
            try:
                sock.sendto(payload, str(other))
            except ConnectionRefusedError:
                other.unlink(missing_ok=True)
            except (BlockingIOError, FileNotFoundError):
                continue  # it has more than it can read, or left just now: a hint may be lost


def _made(where: Sequence[Location], heard: Hear) -> Sockets:
    if len(where) != 1 or where[0].host or not where[0].path:
        raise StoreRefused("Hints through sockets need one address, of an absolute path: sockets:///run/accord")
    return Sockets(Path(where[0].path), heard)


SIGNALS = CarrierType(make=_made)
