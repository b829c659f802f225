"""The page about dialects: its tables are the code's, and what it has curl send is answered as it shows."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.model import TaskState
from accord.protocol import states
from accord.protocol.negotiation import METHOD_DIALECTS, MOUNTS
from accord.protocol.operations import TABLE, DialectName, RestRoute
from tests.environments import ROOT
from tests.guides.showing import URL, Step, serve_words, steps
from tests.guides.tables import Row, code, table
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, Server, accord, rpc, running
from tests.serve.test_welcome import run

PAGE = ROOT / "docs" / "reference" / "dialects.md"
V1, V03, VAULT, GEN, RELAY = DialectName


def test_addresses_and_methods_select_a_dialect() -> None:
    assert table(PAGE, "Addresses that speak one dialect") == [
        (code(address), code(dialect.value)) for address, dialect in MOUNTS.items()
    ]
    assert table(PAGE, "Methods that only one dialect has") == [
        (code(method), code(dialect.value)) for method, dialect in METHOD_DIALECTS.items()
    ]


def test_methods_of_every_dialect() -> None:
    def others(names: dict[DialectName, tuple[str, ...]]) -> str:
        own = {dialect: [name for name in names[dialect] if name not in names[V03]] for dialect in (VAULT, GEN, RELAY)}
        return "; ".join(f"`{dialect.value}`: {code(*found)}" for dialect, found in own.items() if found)

    expected = [(code(*row.names[V1]), code(*row.names[V03]), others(dict(row.names))) for row in TABLE]
    assert table(PAGE, "JSON-RPC methods") == expected


def test_routes_of_both_versions() -> None:
    def routes(prefix: str, found: tuple[RestRoute, ...]) -> list[str]:
        return [code(f"{route.verb} {prefix}{route.path}") for route in found]

    assert table(PAGE, "HTTP+JSON routes and gRPC methods") == [
        (
            code(row.operation.value),
            "<br>".join(routes("", row.rest)),
            "<br>".join(routes("/v1", row.rest_v03) + routes("", row.rest_v02)),
            code(row.grpc_v03) if row.grpc_v03 else "",
        )
        for row in TABLE
    ]


def test_states_of_every_dialect() -> None:
    assert table(PAGE, "States") == [
        (code(state.value), *(code(names[state]) for names in (states.LOWER, states.VAULT, states.GEN)))
        for state in TaskState
    ]


def _lost(name: str) -> list[Row]:
    listed = tomllib.loads((ROOT / "tests" / "golden" / f"lossy_{name}.toml").read_text(encoding="utf-8"))
    return [(code(row["path"]), row["reason"]) for row in listed["lossy"]]


@pytest.mark.parametrize(
    ("heading", "name", "beside"),
    [
        ("`v1`", "v1", None),
        ("`v03`", "v03", None),
        ("`v03` over HTTP+JSON", "v03_rest", "v03"),
        ("`relay`", "relay", "v03"),
        ("`vault`", "vault", None),
        ("`gen`", "gen", None),
    ],
)
def test_fields_missing_in_a_dialect_are_documented(heading: str, name: str, beside: str | None) -> None:
    said = set(_lost(beside)) if beside else set()
    assert table(PAGE, heading) == [row for row in _lost(name) if row not in said]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("dialects")
    target, _, _ = serve_words(PAGE)
    with running(folder, str(ROOT / target), "--grpc-port", str(free_port())) as found:
        yield found


SHOWN = list(steps(PAGE))


@pytest.mark.parametrize("shown", SHOWN, ids=[str(at) for at in range(len(SHOWN))])
def test_shown_requests_are_answered(shown: Step, server: Server, tmp_path: Path) -> None:
    if shown.line.startswith("curl "):
        got = json.loads(run(shown.line.replace(URL, server.url)))
        assert _contains(got, json.loads(shown.shown)), got
    else:
        done = accord(tmp_path, *(word.replace(URL, server.url) for word in shown.words))
        assert (done.returncode, done.stdout.strip()) == (0, shown.shown), done.stderr


def test_every_dialect_is_called_in_its_own_form(server: Server) -> None:
    answered = set()
    for line in (shown.line for shown in SHOWN if "agent-card" not in shown.line and shown.line.startswith("curl ")):
        found = re.search(r"^x-a2a-dialect: (\w+)", run(f"{line.replace(URL, server.url)} -i"), re.MULTILINE)
        assert found is not None
        answered.add((found[1], "HTTP+JSON" if "message:send" in line else "JSONRPC"))
    assert answered == {(dialect.value, "JSONRPC") for dialect in DialectName} | {
        ("v1", "HTTP+JSON"),
        ("v03", "HTTP+JSON"),
    }


def test_a_task_belongs_to_no_dialect(server: Server) -> None:
    old = {"kind": "message", "messageId": "m-8", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
    begun = httpx.post(server.url, json=rpc("message/send", message=old), timeout=BOUND_SECONDS).json()["result"]
    assert server.get(begun["id"])["status"]["state"] == "TASK_STATE_COMPLETED"
    for dialect, params, member in (
        ("gen", {"task_id": begun["id"]}, "status"),
        ("vault", {"id": begun["id"]}, "state"),
    ):
        headers = {"X-A2A-Dialect": dialect}
        answer = httpx.post(server.url, json=rpc("tasks/get", **params), headers=headers, timeout=BOUND_SECONDS)
        assert answer.json()["result"][member].lower() == "completed"


@pytest.mark.parametrize("dialect", DialectName)
def test_events_have_numbers_in_every_dialect(dialect: DialectName, server: Server) -> None:
    method = {V1: "SubscribeToTask", VAULT: "tasks/sendSubscribe"}.get(dialect, "tasks/resubscribe")
    task = server.send("hello", f"m-{dialect.value}")
    key = "task_id" if dialect is GEN else "id"
    headers = {"X-A2A-Dialect": dialect.value, "Last-Event-ID": "0"}
    body = rpc(method, **{key: task["id"]})
    answer = httpx.post(server.url, json=body, headers=headers, timeout=BOUND_SECONDS)
    assert re.findall(r"^id: ?(\d+)$", answer.text, re.MULTILINE), answer.text


def _contains(got: Any, wanted: Any) -> bool:
    """Whether everything that a page shows is there; `...` is anything."""
    if wanted == "...":
        return True
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(key in got and _contains(got[key], value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(_contains, got, wanted))
    return bool(got == wanted)
