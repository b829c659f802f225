"""What a plain start does not load: what takes long to load and most servers never need."""

from pathlib import Path

from tests.serve.running import AGENTS, running, text_of

SLOW = ("joserfc", "cryptography", "grpc", "google.protobuf", "jsonschema_rs", "aiohttp", "yarl", "asyncpg", "rich")


def test_a_plain_start_and_a_first_message_load_nothing_slow(tmp_path: Path) -> None:
    with running(tmp_path, f"{AGENTS}:loaded") as server:
        assert text_of(server.send(" ".join([*SLOW, "uvicorn", "apsw"]))) == "uvicorn apsw"
