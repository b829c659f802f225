"""What begins runs of served workflows, and what they wait for, in real processes: webhooks, schedules, events."""

import base64
import hashlib
import hmac
import json
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from accord.protocol import http_headers
from accord.storage import schema
from accord.storage.address import open_store
from accord.storage.commands import workflow_runs
from tests.ports import free_port
from tests.serve.flowing import PLAIN, asks, began, call, ended, hand_in, result, until, written
from tests.serve.running import ROOT, accord, running, said, text_of

# --- webhooks ---------------------------------------------------------------------------------------------------------

HOOKED = """
version: "1.0"
name: hooked
swarm: {pattern: dag}
on:
  webhook:
    - {path: open}
    - {path: deep/er, input: "{{body.issue.title}} by {{headers.x-from | default('nobody')}}"}
    - {path: signed, secret: github, signature: github}
    - {path: timed, secret: timer, input: "{{body.sum}} {{headers.x-from | default('nobody')}}"}
inputs:
  count: {type: integer, default: 0}
workflows:
  - name: main
    steps:
      - {name: say, type: deterministic, command: "printf '%s|' {{input}} {{inputs.count}}"}
"""


def signature(body: str, secret: str) -> str:
    return f"sha256={hmac.new(secret.encode(), body.encode(), hashlib.sha256).hexdigest()}"


def test_webhook_calls_start_runs_with_their_payload(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    with running(
        tmp_path, "flow.yaml", ACCORD_KEY_GITHUB="s3cret", ACCORD_KEY_TIMER="s3cret", ACCORD_LIMITS__BODY="2000"
    ) as server:
        assert f"POST {server.url}/hooks/hooked/signed (signed)" in server.all_shown
        assert result(ended(server, began(call(server, "hooked/open", "plain words")))) == "plain words|0|"
        given = {"count": 3, "other": [1]}
        assert result(ended(server, began(call(server, "hooked/open", given)))) == f"{json.dumps(given)}|3|"
        deep = {"issue": {"title": "it's $(broken)"}, "count": 4}
        made = ended(server, began(call(server, "hooked/deep/er/", deep, X_From="ada")))
        assert result(made) == "it's $(broken) by ada|4|"
        assert result(ended(server, began(call(server, "hooked/deep/er", deep)))) == "it's $(broken) by nobody|4|"
        lacking = call(server, "hooked/deep/er", {"issue": 1})
        assert lacking.status_code == 400
        assert "body.issue.title has no value" in lacking.json()["detail"]
        wrong = call(server, "hooked/open", {"count": "many"})
        assert wrong.status_code == 400
        assert "the input 'count' is 'many'" in wrong.json()["detail"]
        assert len(server.post("ListTasks").json()["result"]["tasks"]) == 4, "nothing has begun"
        assert call(server, "hooked/absent", "x").status_code == 404
        assert call(server, "absent/open", "x").status_code == 404
        assert call(server, "hooked/open", b"\xff\xfe").status_code == 400
        assert call(server, "hooked/open", "x" * 3000).status_code == 413
        assert httpx.get(f"{server.url}/hooks/hooked/open").status_code == 405
        assert call(server, "hooked/open", "x", Origin="http://evil.example").status_code == 403


def test_an_input_that_a_call_lacks_may_be_fixed_by_settings(tmp_path: Path) -> None:
    written(tmp_path, re.sub(".*secret: .*\n", "", HOOKED.replace("default: 0", "required: true")))
    tables = '[agents.free]\ntarget = "flow.yaml"\n[agents.fixed]\ntarget = "flow.yaml"\nvars = { count = 5 }\n'
    written(tmp_path, tables, "accord.toml")
    with running(tmp_path) as server:
        lacking = call(server, "free/open", "x")
        assert lacking.status_code == 400
        assert "the input 'count' is needed" in lacking.json()["detail"]
        made = began(call(server, "fixed/open", "x"))
        assert result(ended(server, made, path="/agents/fixed/")) == "x|5|"


def test_a_delivery_that_comes_again_begins_nothing_new(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    with running(
        tmp_path, "flow.yaml", "--workers", "2", ACCORD_KEY_GITHUB="s3cret", ACCORD_KEY_TIMER="s3cret"
    ) as server:
        for name in ("X_GitHub_Delivery", "Idempotency_Key", "webhook_id"):
            runs = {began(call(server, "hooked/open", name, **{name: "d-1"})) for _ in range(4)}
            assert len(runs) == 1
            assert began(call(server, "hooked/open", name, **{name: "d-2"})) not in runs
        assert len({began(call(server, "hooked/open", "same")) for _ in range(3)}) == 3
        assert call(server, "hooked/open", "x", webhook_id="d" * 300).status_code == 400


def test_webhook_triggers_require_a_signature(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    with running(
        tmp_path, "flow.yaml", "--auth", "api-keys", ACCORD_KEY_GITHUB="s3cret", ACCORD_KEY_TIMER="s3cret"
    ) as server:
        assert call(server, "hooked/open", "x").status_code == 401, "the server's own rules"
        for wrong in ("", "sha256=", "sha256=00", "sha1=00", signature("x", "other"), signature("y", "s3cret")):
            refused = call(server, "hooked/signed", "x", X_Hub_Signature_256=wrong)
            assert refused.status_code == 401, wrong
        assert call(server, "hooked/signed", "x").status_code == 401
        run = began(call(server, "hooked/signed", "x", X_Hub_Signature_256=signature("x", "s3cret")))
        key = json.loads(accord(tmp_path, "apikeys", "create", "--owner", "ada", "-o", "json").stdout)["key"]
        own = began(call(server, "hooked/open", "mine", X_API_Key=key))
        headers = {"X-API-Key": key}
        answers = {id: server.post("GetTask", headers=headers, id=id).json() for id in (run, own)}
        assert "error" in answers[run], "it is the server's, not hers"
        assert answers[own]["result"]["id"] == own


def own(body: str, *, at: int, nonce: str = "", path: str = "timed") -> dict[str, str]:
    """A signature as callers of this server make it."""
    request = http_headers.SignedRequest(method="POST", target=f"/hooks/hooked/{path}", nonce=nonce)
    return {http_headers.SIGNATURE_HEADER: http_headers.sign_body(body.encode(), at, [b"s3cret"], request=request)}


def standard(body: str, *, at: int, id: str = "msg_1", secret: bytes = b"s3cret") -> dict[str, str]:
    """A signature as Standard Webhooks has it."""
    digest = hmac.new(secret, f"{id}.{at}.{body}".encode(), hashlib.sha256).digest()
    value = f"v1a,xyz v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": value}


def test_a_captured_delivery_starts_no_second_run(tmp_path: Path) -> None:
    """Whatever of it is not signed is changed: the other headers, and the names of deliveries."""
    written(tmp_path, HOOKED)
    now, body = int(time.time()), '{"sum": 3}'
    changes = [{}, {"X_From": "eve"}, {"X_GitHub_Delivery": "d-9"}, {"Idempotency_Key": "d-9"}]
    with running(
        tmp_path, "flow.yaml", "--workers", "2", ACCORD_KEY_GITHUB="s3cret", ACCORD_KEY_TIMER="s3cret"
    ) as server:
        for path, signed in (
            ("timed", own(body, at=now)),
            ("timed", own(body, at=now, nonce="n-1")),
            ("timed", standard(body, at=now)),
            ("signed", {"X-Hub-Signature-256": signature(body, "s3cret")}),
        ):
            runs = [began(call(server, f"hooked/{path}", body, **signed, **more)) for more in changes]
            assert len(set(runs)) == 1, signed
        assert len(server.post("ListTasks").json()["result"]["tasks"]) == 4
        again = began(call(server, "hooked/timed", body, **own(body, at=now - 1, nonce="n-1")))
        assert again == began(call(server, "hooked/timed", body, **own(body, at=now, nonce="n-1")))
        assert began(call(server, "hooked/timed", body, **standard(body, at=now, id="msg_2"))) != again
        assert len(server.post("ListTasks").json()["result"]["tasks"]) == 5


def test_a_signature_is_good_for_its_time_its_address_and_its_kind(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    now, body = int(time.time()), '{"sum": 3}'
    hub = {"X-Hub-Signature-256": signature(body, "s3cret")}
    as_body = f"{now}.n\nPOST /hooks/hooked/timed\n{body}"
    value = own(body, at=now, nonce="n")[http_headers.SIGNATURE_HEADER].rpartition("=")[2]
    env = {"ACCORD_KEY_GITHUB": "s3cret", "ACCORD_KEY_TIMER": "s3cret", "ACCORD_HOOKS__TOLERANCE_SECONDS": "60"}
    with running(tmp_path, "flow.yaml", **env) as server:
        for path, said, refused in (
            ("timed", body, own(body, at=now - 3600)),
            ("timed", body, own(body, at=now + 3600)),
            ("timed", body, standard(body, at=now - 3600)),
            ("timed", body, standard(body, at=now, secret=b"other")),
            ("timed", body, standard(body, at=now) | {"webhook-id": "msg_2"}),
            ("timed", body, standard(body, at=now) | {"webhook-timestamp": str(now + 1)}),
            ("timed", body, standard(body, at=now, id="a.1")),
            ("timed", body, own(body, at=now, path="signed")),
            ("timed", body + " ", own(body, at=now)),
            ("timed", body, {http_headers.SIGNATURE_HEADER: "t=1"}),
            ("timed", body, hub),
            ("signed", body, own(body, at=now, path="signed")),
        ):
            answer = call(server, f"hooked/{path}", said, **refused)
            assert answer.status_code == 401, (path, refused)
        assert "x-a2a-signature or webhook-signature" in call(server, "hooked/timed", body, **hub).json()["detail"]
        # What was signed with a timestamp is the body of another kind: it is not taken for one.
        assert signature(as_body, "s3cret") == f"sha256={value}"
        assert call(server, "hooked/timed", as_body, X_Hub_Signature_256=f"sha256={value}").status_code == 401
        assert server.post("ListTasks").json()["result"]["tasks"] == []


def test_a_standard_secret_is_base64(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    secret, now = b"twenty-four bytes or so.", int(time.time())
    env = {"ACCORD_KEY_GITHUB": "s3cret", "ACCORD_KEY_TIMER": f"whsec_{base64.b64encode(secret).decode()}"}
    with running(tmp_path, "flow.yaml", **env) as server:
        began(call(server, "hooked/timed", '{"sum": 1}', **standard('{"sum": 1}', at=now, secret=secret)))
    done = accord(tmp_path, "serve", "flow.yaml", "--port", str(free_port()), **env | {"ACCORD_KEY_TIMER": "whsec_!"})
    assert (done.returncode, "timer begins with whsec_ and is not base64" in done.stderr) == (1, True)


def test_missing_secrets_are_reported_at_start(tmp_path: Path) -> None:
    written(tmp_path, HOOKED)
    for more in ([], ["--workers", "2"]):
        done = accord(tmp_path, "serve", "flow.yaml", "--port", str(free_port()), *more)
        assert done.returncode == 1
        assert "hooked cannot be served: a webhook of it is signed with the credential github" in done.stderr
        assert "(accord creds set github)" in done.stderr


# --- schedules --------------------------------------------------------------------------------------------------------


async def test_missed_schedules_run_once(tmp_path: Path) -> None:
    text = PLAIN.replace("WORD", "{{input}}").replace(
        "workflows:", 'on: {schedule: [{cron: "* * * * *", input: tick}, {cron: "0 0 1 1 *"}]}\nworkflows:'
    )
    written(tmp_path, text)
    url = f"sqlite:///{tmp_path}/own.db"
    earlier = time.time_ns() // 1_000_000 - 5 * 60_000
    async with open_store(url) as store:  # as if it had been served until five minutes ago
        await schema.upgrade_schema(store)
        await store.do(workflow_runs.schedule_positions, "plain", ["* * * * * UTC", "0 0 1 1 * UTC"], earlier)
    with running(tmp_path, "flow.yaml", "--store", url, "--workers", "2") as server:
        assert "schedule * * * * * UTC" in server.all_shown

        def tasks() -> list[dict[str, Any]] | None:
            found: list[dict[str, Any]] = server.post("ListTasks", includeArtifacts=True).json()["result"]["tasks"]
            return found if found and all("artifacts" in one for one in found) else None

        found = until(tasks)
        assert [text_of(one) for one in found] in (["tick"], ["tick", "tick"]), "a minute may end meanwhile"
        due = {one["history"][0]["metadata"]["schedule"] for one in found}
        assert len(due) == len(found)


# --- what steps wait for ----------------------------------------------------------------------------------------------

WAITING = """
version: "1.0"
name: waiting
swarm: {pattern: dag}
workflows:
  - name: main
    steps:
      - {name: paid, type: wait, event: payment}
      - {name: ok, type: approval, task: "Ship it?", dependsOn: [paid]}
      - {name: ship, type: deterministic, command: "printf %s/%s {{steps.paid.json.sum}} {{steps.ok}}", dependsOn: [ok]}
"""


def test_events_and_decisions_are_handed_in_over_http(tmp_path: Path) -> None:
    written(tmp_path, WAITING)
    store = f"sqlite:///{tmp_path}/own.db"
    with (
        running(tmp_path, "flow.yaml", "--store", store) as server,
        running(tmp_path, "flow.yaml", "--store", store) as other,
    ):
        run = server.send("x", at_once=True)["id"]
        until(lambda: hand_in(other, run, "approvals/ok", {"approved": True}) == 409 or None)  # it does not ask yet
        assert hand_in(other, run, "events/refund", {}) == 404
        assert hand_in(other, run, "approvals/paid", {"approved": True}) == 404
        assert hand_in(other, run, "events/payment", {"sum": 3}) == 204
        assert hand_in(server, run, "events/payment", {"sum": 4}) == 409
        until(lambda: asks(server, run) or None)
        assert hand_in(other, run, "approvals/ok", {"aproved": True}) == 422
        assert hand_in(other, run, "approvals/ok", {"approved": True, "comment": "fine"}) == 204
        assert result(ended(server, run)) == "3/fine"
        assert hand_in(other, run, "approvals/ok", {"approved": False}) == 409
        assert hand_in(other, "no-such-run", "events/payment", {}) == 404
        page = httpx.post(f"{server.url}/api/runs/{run}/events/payment", content="1")
        assert page.status_code == 400, "pages of other origins cannot say that they send JSON"


def test_runs_are_their_owners_alone(tmp_path: Path) -> None:
    written(tmp_path, WAITING)
    with running(tmp_path, "flow.yaml", "--auth", "api-keys") as server:

        def key(owner: str, *more: str) -> dict[str, str]:
            made = accord(tmp_path, "apikeys", "create", "--owner", owner, *more, "-o", "json")
            return {"X-API-Key": json.loads(made.stdout)["key"]}

        ada, bob = key("ada"), key("bob")
        reader, admin, elsewhere = (
            key("ada", "--role", "reader"),
            key("root", "--role", "admin"),
            key("ada", "--tenant", "b"),
        )
        configuration = {"returnImmediately": True}
        sent = server.post("SendMessage", headers=ada, message=said("x"), configuration=configuration)
        run = sent.json()["result"]["task"]["id"]
        assert hand_in(server, run, "events/payment", {}) == 401
        until(lambda: hand_in(server, run, "approvals/ok", {"approved": True}, **ada) == 409 or None)
        assert hand_in(server, run, "events/payment", {"sum": 1}, **bob) == 404
        assert hand_in(server, run, "events/payment", {"sum": 1}, **elsewhere) == 404
        assert hand_in(server, run, "events/payment", {"sum": 1}, **reader) == 403
        assert hand_in(server, run, "events/payment", {"sum": 1}, **ada) == 204
        until(lambda: asks(server, run, ada) or None)
        assert hand_in(server, run, "approvals/ok", {"approved": True}, **bob) == 404
        assert hand_in(server, run, "approvals/ok", {"approved": True, "comment": "yes"}, **admin) == 204


CALLING = """
version: "1.0"
name: calling
swarm: {pattern: dag}
agents:
  - {name: payer, command: "SCRIPT", interactive: false}
workflows:
  - name: main
    output: "{{steps.paid.output}} {{steps.told.output}} {{run.id}}"
    steps:
      - {name: order, type: agent, agent: payer, task: "Report to {{run.events.payment}} please", allowEmpty: true}
      - {name: paid, type: wait, event: payment}
      - {name: tell, type: deterministic, argv: [CURL, "{{run.events.done}}", "{{run.id}}"], dependsOn: [paid]}
      - {name: told, type: wait, event: done}
"""

POST = """import sys, urllib.request
url = [word for word in (sys.argv[1:] or sys.stdin.read().split()) if word.startswith("http")][0]
body = (sys.argv[2:] or ['{"sum": 3}'])[0].encode()
with urllib.request.urlopen(urllib.request.Request(url, data=body, method="POST")) as answer:
    assert answer.status == 204
"""


def test_steps_get_an_address_for_their_event(tmp_path: Path) -> None:
    script = written(tmp_path, POST, "post.py")
    command = f"{sys.executable} {script}"
    written(tmp_path, CALLING.replace("SCRIPT", command).replace("CURL", command.replace(" ", ", ")))
    store, port = f"sqlite:///{tmp_path}/own.db", free_port()
    with running(tmp_path, "flow.yaml", "--store", store, "--auth", "api-keys", port=port) as other:
        arguments = ("--store", store, "--auth", "api-keys", "--url", other.url)
        with running(tmp_path, "flow.yaml", *arguments) as server:
            key = json.loads(
                accord(tmp_path, "apikeys", "create", "--owner", "ada", "--store", store, "-o", "json").stdout
            )
            headers = {"X-API-Key": key["key"]}
            sent = server.post(
                "SendMessage", headers=headers, message=said("x"), configuration={"returnImmediately": True}
            )
            run = sent.json()["result"]["task"]["id"]

            def done() -> dict[str, Any] | None:
                task: dict[str, Any] = server.post("GetTask", headers=headers, id=run).json()["result"]
                return task if task["status"]["state"].endswith(("COMPLETED", "FAILED")) else None

            assert result(until(done)) == f'{{"sum":3}} {run} {run}'
            assert httpx.post(f"{other.url}/api/events?token=x", content="x").status_code == 401
            assert httpx.post(f"{other.url}/api/events", content="x").status_code == 401


def test_a_run_has_no_address_of_an_event_that_nothing_waits_for(tmp_path: Path) -> None:
    written(tmp_path, PLAIN.replace("WORD", "{{run.events.payment}}"))
    done = accord(tmp_path, "serve", "flow.yaml")
    assert done.returncode == 2
    assert "no step waits for it: add `type: wait`, `event: payment`" in done.stderr


EXAMPLE = ROOT / "examples" / "workflows" / "triage.yaml"


def test_the_trigger_example_works(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "agents" / "workflow.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```yaml\n(on:.*?)```", document, re.DOTALL) for line in block.splitlines()]
    assert len(lines) == 10
    assert set(lines) <= set(EXAMPLE.read_text(encoding="utf-8").splitlines())
    shutil.copy(EXAMPLE, tmp_path)
    with running(tmp_path, "triage.yaml", ACCORD_KEY_GITHUB="s3cret") as server:
        run = began(call(server, "triage/report", {"title": "It's broken"}))
        url = until(lambda: (tmp_path / "scan.log").read_text() if (tmp_path / "scan.log").exists() else None).split()[
            -1
        ]
        assert httpx.post(url, json={"label": "bug"}).status_code == 204
        until(lambda: asks(server, run) or None)
        assert hand_in(server, run, "approvals/agree", {"approved": True}) == 204
        assert result(ended(server, run)).strip() == "labelled It's broken as bug"
