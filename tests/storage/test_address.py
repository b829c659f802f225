"""Addresses: every form an operator may write, what is refused, and that no password is ever shown."""

from pathlib import Path

import pytest

from accord.storage.address import (
    Address,
    BadAddress,
    PostgresAddress,
    SqliteAddress,
    default_address,
    default_path,
    parse_address,
)
from tests.cases import each


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///accord.db", Path("accord.db")),
        ("sqlite:///data/accord.db", Path("data/accord.db")),
        ("sqlite:////var/lib/accord/accord.db", Path("/var/lib/accord/accord.db")),
        ("sqlite:////with%20space/100%25%3F%23.db", Path("/with space/100%?#.db")),
        ("sqlite://:memory:", None),
        ("sqlite:///:memory:", None),
    ],
)
def test_sqlite_addresses(url: str, path: Path | None) -> None:
    assert parse_address(url) == SqliteAddress(path=path)
    assert parse_address(str(parse_address(url))) == parse_address(url)


def postgres(url: str) -> PostgresAddress:
    found: Address = parse_address(url)
    assert isinstance(found, PostgresAddress)
    return found


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_database_and_its_own_options_are_passed_on(scheme: str) -> None:
    found = postgres(f"{scheme}://me:s%40cret@db:5432/accord?sslmode=require&application_name=x")
    assert found.dsn == f"{scheme}://me:s%40cret@db:5432/accord?sslmode=require&application_name=x"
    assert (found.listen, found.signals) == (True, ())
    assert str(found) == f"{scheme}://me@db:5432/accord?sslmode=require"


@pytest.mark.parametrize(
    ("options", "listen", "signals", "shown"),
    [
        ("?listen=on", True, (), ""),
        ("?listen=off", False, (), "?listen=off"),
        ("?signals=nats://a:4222", False, ("nats://a:4222",), "?signals=nats://a:4222"),
        (
            "?signals=nats://me:s3cret@a:4222,tls://b:4222",
            False,
            ("nats://me:s3cret@a:4222", "tls://b:4222"),
            "?signals=nats://me@a:4222,tls://b:4222",
        ),
        ("?signals=nats%3A%2F%2Fa%3A4222&listen=off", False, ("nats://a:4222",), "?signals=nats://a:4222"),
    ],
)
def test_our_own_options_are_not_the_server_s(options: str, listen: bool, signals: tuple[str, ...], shown: str) -> None:
    found = postgres("postgresql://db/accord" + options)
    assert found.dsn == "postgresql://db/accord"
    assert (found.listen, found.signals) == (listen, signals)
    assert str(found) == "postgresql://db/accord" + shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db/accord",
        "postgresql://me:s3cret@a:1,b:2/accord",
        "postgresql://me:s3cret@[::1]:5432/accord",
        "postgresql://db/accord?user=me&password=s3cret",
        "postgresql://db/accord?sslpassword=s3cret",
        "postgresql://me:more@s3cret@db/accord",
        "postgresql://me:@/accord?host=/tmp/socket&signals=nats://me:s3cret@n:1",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    found = postgres(url)
    assert "s3cret" not in str(found)
    assert "s3cret" not in repr(found)
    assert "accord" in str(found)


@each(
    ("url", "reason"),
    [
        ("", "no scheme"),
        ("accord.db", "no scheme; write sqlite:/// before the path of a file"),
        ("/var/lib/s3cret.db", "no scheme"),
        ("me:s3cret@host", "no scheme"),
        ("mysql://me:s3cret@host/db", r"mysql://; known are sqlite:///relative\.db.*postgresql://"),
        ("sqlite://relative.db", "three slashes"),
        ("sqlite://host/relative.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite://", "three slashes"),
        ("sqlite:///a.db?mode=ro&cache=s3cret", "takes no options, and the address has mode, cache"),
        ("sqlite:///a#b.db", "%23"),
        ("postgresql://me:s3cret#1@db/accord", "%23"),
        ("postgresql://me:s3/s3cret@db/accord", "%2F"),
        ("postgresql://me:1/s3cret@db/accord", "%2F"),
        ("postgresql://me:1?s3cret@db/accord", "valid URL"),
        ("postgresql://me:1?s3cret=2@db/accord", "%3F"),
        ("postgresql://me:s3cret@[::1/accord", "valid URL"),
        ("postgresql://me:s3cret@db/accord?listen=maybe", "on or off"),
        ("postgresql://me:s3cret@db/accord?listen=on&signals=nats://a", "not by both"),
        ("postgresql://me:s3cret@db/accord?signals=s3cret:4222", "nats://host:4222"),
    ],
)
def test_invalid_addresses_are_refused_unquoted(url: str, reason: str) -> None:
    with pytest.raises(BadAddress, match=reason) as refused:
        parse_address(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("platform", "env", "expected"),
    [
        ("linux", {"HOME": "/home/me"}, "/home/me/.local/share/accord/accord.db"),
        ("linux", {"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, "/data/accord/accord.db"),
        ("linux", {"HOME": "/home/me", "XDG_DATA_HOME": "relative"}, "/home/me/.local/share/accord/accord.db"),
        ("linux", {"HOME": "/home/me", "XDG_DATA_HOME": ""}, "/home/me/.local/share/accord/accord.db"),
        ("darwin", {"HOME": "/Users/me"}, "/Users/me/Library/Application Support/accord/accord.db"),
        ("win32", {"LOCALAPPDATA": "C:/Users/me/AppData/Local"}, "C:/Users/me/AppData/Local/accord/accord.db"),
        ("win32", {"HOME": "/Users/me"}, "/Users/me/AppData/Local/accord/accord.db"),
    ],
)
def test_the_default_is_in_the_user_s_data_directory(platform: str, env: dict[str, str], expected: str) -> None:
    assert default_path(env, platform) == Path(expected)


def test_the_default_directory_is_ours_to_make() -> None:
    env = {"HOME": "/home/me"}
    assert default_address(env) == SqliteAddress(path=default_path(env), own_directory=True)
    assert default_path({}).is_absolute()
