"""Names and passwords: who is who, how long refusing takes, and that hashing never holds up the server."""

import asyncio
import base64
import threading
from typing import Any

import pytest

from accord.auth import passwords
from accord.auth.authentication import Identity
from accord.auth.passwords import BasicAccess, Scrypt
from accord.auth.scheme_settings import Basic, User
from accord.errors import AuthenticationFailed, RateLimited
from tests.auth.conftest import Clock, bringing, presenting
from tests.cases import each
from tests.passwords import cheap_hash

PASSWORD = "corréct horse: battery"
CHEAP = cheap_hash(PASSWORD)
ALICE = Identity(owner="alice", tenant="acme", roles=frozenset({"user"}))

pytestmark = pytest.mark.proves("3-33")


def encoded(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
def access(clock: Clock) -> BasicAccess:
    alice = User(password=CHEAP, tenant="acme", roles=("user",))
    bob = User(password=CHEAP, owner="robert", tenant="*")
    return BasicAccess(Basic(users={"alice": alice, "bob": bob}), clock)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every password that was hashed, and the thread that did it."""
    found: list[tuple[str, str]] = []
    real = Scrypt.fits

    def fits(self: Scrypt, password: str) -> bool:
        found.append((password, threading.current_thread().name))
        return real(self, password)

    monkeypatch.setattr(Scrypt, "fits", fits)
    return found


async def refuse(access: BasicAccess, authorization: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        await access.identify(bringing(Authorization=authorization))
    assert refused.value.message == "The credentials are missing or invalid"


async def test_a_user_with_the_password_is_let_in(access: BasicAccess) -> None:
    assert await access.identify(bringing(Authorization=encoded("alice", PASSWORD))) == ALICE
    assert await access.identify(
        bringing(Authorization=encoded("bob", PASSWORD).replace("Basic", "bAsIc"))
    ) == Identity(owner="robert", tenant=None)
    assert await access.identify(bringing()) is None
    assert await access.identify(bringing(Authorization="Bearer abc")) is None
    assert access.challenge == 'Basic realm="accord", charset="UTF-8"'
    assert access.security["basic"].http_auth_security_scheme is not None


@pytest.mark.parametrize(
    "authorization",
    [
        encoded("alice", "wrong"),
        encoded("alice", ""),
        encoded("alice", PASSWORD + " "),
        encoded("Alice", PASSWORD),
        encoded("carol", PASSWORD),
        encoded("", PASSWORD),
        "Basic",
        "Basic !!!",
        "Basic \xe4",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"alice:\xff").decode(),
        "Basic " + "A" * 10_000_000,
        encoded("alice", "x" * 2000),
    ],
)
async def test_anything_else_is_refused(authorization: str, access: BasicAccess) -> None:
    await refuse(access, authorization)


async def test_an_unknown_user_costs_as_much_as_a_wrong_password(
    access: BasicAccess, hashed: list[tuple[str, str]]
) -> None:
    await refuse(access, encoded("alice", "wrong"))
    await refuse(access, encoded("carol", "wrong"))
    await refuse(access, encoded("carol", PASSWORD))  # whose hash it is compared with does not matter
    assert [password for password, _ in hashed] == ["wrong", "wrong", PASSWORD]


async def test_correct_passwords_are_cached_and_hashed_in_threads(
    access: BasicAccess, hashed: list[tuple[str, str]], clock: Clock
) -> None:
    for _ in range(10):
        assert await access.identify(bringing(Authorization=encoded("alice", PASSWORD))) == ALICE
    await refuse(access, encoded("alice", "wrong"))
    await refuse(access, encoded("alice", "wrong"))
    assert len(hashed) == 3
    clock.at += 300
    assert await access.identify(bringing(Authorization=encoded("alice", PASSWORD))) == ALICE
    assert len(hashed) == 4
    assert threading.main_thread().name not in {thread for _, thread in hashed}


async def test_cached_logins_hold_no_password(access: BasicAccess) -> None:
    await access.identify(bringing(Authorization=encoded("alice", PASSWORD)))
    (kept,) = access._right._kept
    assert isinstance(kept, bytes)
    assert len(kept) == 64
    again = BasicAccess(Basic(users={"alice": User(password=CHEAP)}))
    await again.identify(bringing(Authorization=encoded("alice", PASSWORD)))
    assert kept not in again._right._kept  # another process makes another digest


# --- guesses ----------------------------------------------------------------------------------------------------------

HERE, THERE = "192.0.2.1", "198.51.100.7"


class Gate:
    """Hashing that does not end before the test says so, and the most that went on at a time."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.at_once = self.most = 0
        self.passwords: list[str] = []

    def fits(self, password: str) -> bool:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        self.passwords.append(password)
        self.go.wait(10)
        self.at_once -= 1
        return password == PASSWORD


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    found = Gate()
    monkeypatch.setattr(Scrypt, "fits", lambda _, password: found.fits(password))
    return found


def trying(access: BasicAccess, name: str, password: str, peer: str = HERE) -> "asyncio.Task[Identity | None]":
    presented = presenting({"Authorization": encoded(name, password)}, peer=peer)
    return asyncio.create_task(access.identify(presented))


async def outcome(task: "asyncio.Task[Identity | None]") -> type[Any]:
    (found,) = await asyncio.gather(task, return_exceptions=True)
    return type(found)


async def test_wrong_passwords_are_throttled_by_address_and_account(
    access: BasicAccess, clock: Clock, hashed: list[tuple[str, str]]
) -> None:
    allowed = passwords.PAIR[1]
    for number in range(allowed):
        assert await outcome(trying(access, "alice", f"guess {number}")) is AuthenticationFailed
    with pytest.raises(RateLimited) as refused:
        await trying(access, "alice", "guess")
    assert (refused.value.retry_after, refused.value.metadata) == (6, {"limit": "passwords"})
    assert len(hashed) == allowed, "and it was not even hashed"
    assert await trying(access, "alice", PASSWORD, THERE) == ALICE
    assert await outcome(trying(access, "bob", PASSWORD)) is Identity
    clock.at += 6
    assert await trying(access, "alice", PASSWORD) == ALICE


async def test_right_passwords_are_no_failures(access: BasicAccess, clock: Clock) -> None:
    for _ in range(2 * passwords.PAIR[1]):
        assert await trying(access, "alice", PASSWORD) == ALICE
        clock.at += 300  # so that it is hashed each time


@pytest.mark.parametrize("of", ["addresses", "accounts"])
async def test_one_account_or_address_has_a_limit_however_the_other_changes(of: str, access: BasicAccess) -> None:
    assert await trying(access, "alice", PASSWORD, THERE) == ALICE
    limit = passwords.ACCOUNT[1] if of == "addresses" else passwords.ADDRESS[1]
    for number in range(limit):
        guess = ("alice", f"10.0.0.{number}") if of == "addresses" else (f"user {number}", HERE)
        assert await outcome(trying(access, guess[0], "guess", guess[1])) is AuthenticationFailed
    assert await outcome(trying(access, "alice", "guess", HERE)) is RateLimited
    access._right.forget(next(iter(access._right._kept)))
    assert await trying(access, "alice", PASSWORD, THERE) == ALICE, "where she has signed in before, she still can"


async def test_a_flood_from_one_address_leaves_places_to_others(access: BasicAccess, gate: Gate) -> None:
    flood = [trying(access, f"user {number}", "guess") for number in range(90)]
    await asyncio.sleep(0)
    right = trying(access, "alice", PASSWORD, THERE)
    await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    gate.go.set()
    assert await right == ALICE
    found = [await outcome(task) for task in flood]
    assert found.count(AuthenticationFailed) == passwords.WAITING_PER_ADDRESS
    assert found.count(RateLimited) == 90 - passwords.WAITING_PER_ADDRESS
    assert gate.most <= passwords.AT_ONCE


async def test_floods_leave_room_for_known_addresses(access: BasicAccess, gate: Gate, clock: Clock) -> None:
    gate.go.set()
    assert await trying(access, "alice", PASSWORD) == ALICE
    clock.at += 300
    gate.go.clear()
    flood = [trying(access, "bob", f"guess {number}", f"10.0.0.{number}") for number in range(90)]
    await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    right = trying(access, "alice", PASSWORD)
    await asyncio.sleep(0)
    gate.go.set()
    assert await right == ALICE
    found = [await outcome(task) for task in flood]
    assert found.count(AuthenticationFailed) == passwords.WAITING - passwords.RESERVED


async def test_a_password_that_many_requests_bring_at_once_is_hashed_once(access: BasicAccess, gate: Gate) -> None:
    requests = [trying(access, "alice", PASSWORD) for _ in range(100)]
    await asyncio.sleep(0)
    requests.pop().cancel()
    gate.go.set()
    assert [await task for task in requests] == [ALICE] * 99
    assert gate.passwords == [PASSWORD]


# --- hashes -----------------------------------------------------------------------------------------------------------


def test_a_hash_is_salted_costly_and_read_back() -> None:
    first, second = passwords.hash_password("x"), passwords.hash_password("x")
    assert first != second
    assert first.startswith("scrypt$32768$8$3$")
    assert passwords.read_hash(first).fits("x")
    assert not passwords.read_hash(first).fits("y")
    assert first.rpartition("$")[2] not in repr(passwords.read_hash(first))


@each(
    "text",
    [
        "",
        "plain text",
        "bcrypt$2$8$1$c2FsdHNhbHQ=$" + "A" * 44,
        CHEAP.replace("$2$", "$3$"),
        CHEAP.replace("$2$", "$0$"),
        CHEAP.replace("$2$", "$1073741824$"),
        CHEAP.replace("$2$", "$٢$"),
        CHEAP.replace("$8$", "$0$"),
        CHEAP.replace("$1$", "$0$"),
        CHEAP.replace("c2FsdHNhbHQ=", "c2Fs"),
        CHEAP.replace("c2FsdHNhbHQ=", "c2FsdHNhbHQ"),
        CHEAP[:-20],
    ],
)
def test_invalid_password_hashes_are_refused_at_start(text: str) -> None:
    with pytest.raises(ValueError, match="password"):
        BasicAccess(Basic(users={"alice": User(password=text)}))


@pytest.mark.parametrize("users", [{}, {"": User(password=CHEAP)}, {"a:b": User(password=CHEAP)}])
def test_users_that_could_never_log_in_are_refused(users: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="users"):
        BasicAccess(Basic(users=users))
