"""Places for runs that are about to begin: taken while the store is asked, so that nobody else is given one."""

from collections import Counter


class Promise:
    """Runs that are about to begin, on the node that is given if there is one; every message passes here."""

    __slots__ = ("_agent", "_count", "_node", "_promised")

    def __init__(self, promised: Counter[str], agent: str, count: int, node: str | None) -> None:
        self._promised = promised
        self._agent = agent
        self._count = count
        self._node = node

    def __enter__(self) -> str | None:
        self._promised[self._agent] += self._count
        return self._node

    def __exit__(self, *_raised: object) -> None:
        self._promised[self._agent] -= self._count
