"""A keyring for tests, in memory; the package finds it by the name in PYTHON_KEYRING_BACKEND."""

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class MemoryKeyring(KeyringBackend):
    """Keeps passwords in a dictionary, and can be broken."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.asked: list[tuple[str, str]] = []
        self.is_broken = False

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        self.asked.append((service, username))
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("there is none")

    def _check(self) -> None:
        if self.is_broken:
            raise RuntimeError("the test wants it so")
