"""Writes down what a release leaves in its store: run by hand with each release that has a new schema.

    python -m tests.upgrade.stores.write > tests/upgrade/stores/0002.json

It serves on a SQLite file with the release that is installed, has tasks ended, asked and interrupted by a kill, and
prints every row. Tests read the file (`tests.upgrade.kept`) and never write one.
"""

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import apsw
import httpx

from accord.storage import schema
from tests.serve.running import BOUND_SECONDS, V1, Server, accord, events, rpc, said

AGENTS = Path(__file__).parent.parent / "agents.py"


def interrupted(server: Server) -> None:
    """Begin a task, and kill the server in the middle of it."""
    body = rpc("SendStreamingMessage", message=said("go", "halted"))
    url = f"{server.url}/agents/halting/"
    with httpx.stream("POST", url, json=body, headers=V1, timeout=BOUND_SECONDS) as response:
        for _, event in events(response):
            if "artifactUpdate" in event:
                server.kill()
                return


def plain(value: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def rows(file: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table that has rows, without what the next release writes itself."""
    connection = apsw.Connection(str(file))
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").get
    found = {}
    for name in sorted(table for table in tables if not table.startswith("schema_")):
        cursor = connection.execute(f"SELECT * FROM {name}")
        found[name] = [
            {column[0]: plain(value) for column, value in zip(cursor.get_description(), row, strict=True)}
            for row in cursor
        ]
    connection.close()
    return {name: kept for name, kept in found.items() if kept}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "accord.db"
        store = ["--store", f"sqlite:///{file}"]
        agents = [f"{AGENTS}:{agent}" for agent in ("counting", "halting", "asking")]
        server = Server(folder, *agents, *store)
        server.send("3 0", "counted")
        server.send("x", "asked", path="/agents/asking/")
        accord(folder, "apikeys", "create", "--name", "laptop", "--owner", "alice", *store)
        interrupted(server)
        json.dump({"schema": schema.known_migrations()[-1].number, "tables": rows(file)}, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
