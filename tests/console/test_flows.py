"""Workflows and their runs as pages ask for them: what is shown, to whom, and how runs are begun and run again."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan
from tests.databases import emptied, postgres
from tests.engine.doubles import until
from tests.registry.conftest import SCHEMES, SECRETS

__all__ = ["postgres"]

FLOW = """\
version: "1"
name: shipping
description: Ships things
swarm: { pattern: dag }
on:
  schedule:
    - { cron: "0 4 1 1 *", timezone: Europe/Berlin, vars: { city: Rome } }
  webhook:
    - { path: orders }
inputs:
  city: { type: string, required: true, description: Where to }

workflows:
  - name: main
    steps:
      - name: pack  # first
        type: deterministic
        command: echo packed for {{inputs.city}}
        verification: { type: output_contains, value: packed }

      - name: boxes
        type: map
        over: [red, blue]
        step: { name: box, type: deterministic, command: "echo {{item}} box" }
        dependsOn: [pack]
      - { name: agree, type: approval, task: "Ship to {{inputs.city}}?", dependsOn: [boxes] }
      - name: ship
        type: deterministic
        command: cat ready
        retries: 1
        retryDelay: 1ms
        dependsOn: [agree]
      - { name: bill, type: deterministic, command: "echo billed", dependsOn: [ship] }
"""
STEPS = ["pack", "boxes", "boxes[0]", "boxes[1]", "agree", "ship", "bill"]
ENDED = {"completed", "failed", "canceled", "rejected"}


class Desk:
    """A server with a workflow, asked in this process."""

    def __init__(self, app: Application, folder: Path) -> None:
        self.app, self.folder = app, folder

    async def ask(self, method: str, path: str, body: Any = None, *, by: str = "", query: str = "") -> Response:
        known = {"X-Secret": SECRETS[by]} if by else {}
        headers = {"Host": "localhost:8000", "Content-Type": "application/json"} | known
        data = b"" if body is None else json.dumps(body).encode()
        return await call(self.app, data, method=method, path=path, query=query, headers=headers)

    async def read(self, path: str, *, by: str = "", query: str = "") -> dict[str, Any]:
        answer = await self.ask("GET", path, by=by, query=query)
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.json()
        return found

    async def begun(self, by: str = "", **more: Any) -> str:
        body = {"workflow": "shipping", "inputs": {"city": "Oslo"}} | more
        answer = await self.ask("POST", "/api/runs", body, by=by)
        assert answer.status == 201, answer.body
        run: str = answer.json()["id"]
        return run

    async def once(self, run: str, *statuses: str, by: str = "") -> dict[str, Any]:
        """Wait until a run has one of these statuses, and return it."""
        found: dict[str, Any] = {}

        async def is_so() -> bool:
            found.update(await self.read(f"/api/runs/{run}", by=by))
            assert found["status"] not in ENDED or found["status"] in statuses, found["error"]
            return found["status"] in statuses

        await until(is_so)
        return found

    async def decided(self, run: str, *, approved: bool = True, by: str = "") -> None:
        await self.once(run, "input-required", by=by)
        said = {"approved": approved, "comment": "fine"}
        answer = await self.ask("POST", f"/api/runs/{run}/approvals/agree", said, by=by)
        assert answer.status == 204, answer.body

    async def failed(self, by: str = "") -> dict[str, Any]:
        """A run that has failed at `ship`, because there is nothing to ship."""
        run = await self.begun(by=by)
        await self.decided(run, by=by)
        return await self.once(run, *ENDED, by=by)

    async def rerun(self, run: str, by: str = "", **body: Any) -> str:
        answer = await self.ask("POST", f"/api/runs/{run}/rerun", body, by=by)
        assert answer.status == 201, answer.body
        found: str = answer.json()["id"]
        return found


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return "sqlite://:memory:"
    return await emptied(request.getfixturevalue("postgres"))


async def serving(folder: Path, **settings: Any) -> AsyncIterator[Desk]:
    file = folder / "shipping.yaml"
    file.write_text(FLOW)
    app = to_a2a(file, **settings)
    async with lifespan(app):
        yield Desk(app, folder)


@pytest.fixture
async def desk(store: str, tmp_path: Path) -> AsyncIterator[Desk]:
    """A server that asks nobody who they are, on each kind of store."""
    async for one in serving(tmp_path, store=store):
        yield one


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Desk]:
    """A server with people of two tenants."""
    async for one in serving(tmp_path, auth={"schemes": SCHEMES}):
        yield one


def steps(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in run["steps"]}


# --- workflows --------------------------------------------------------------------------------------------------------


async def test_workflows_show_inputs_and_triggers(guarded: Desk) -> None:
    found = await guarded.read("/api/workflows", by="alice")
    (flow,) = found["items"]
    assert flow["slug"] == flow["name"] == "shipping"
    assert flow["inputs"]["properties"]["city"] == {"type": "string", "description": "Where to"}
    assert flow["inputs"]["required"] == ["city"]
    assert flow["schedules"] == [{"cron": "0 4 1 1 *", "timezone": "Europe/Berlin"}]
    assert [(hook["url"].endswith("/hooks/shipping/orders"), hook["isSigned"]) for hook in flow["webhooks"]] == [
        (True, False)
    ]
    assert (flow["names"], flow["takesInput"]) == (["main"], False)
    assert (await guarded.read("/api/workflows", by="rita"))["items"] == []  # who only reads runs nothing


# --- a run ------------------------------------------------------------------------------------------------------------


async def test_runs_show_steps_document_and_waits(desk: Desk) -> None:
    run = await desk.begun()
    found = await desk.once(run, "input-required")
    assert [step["name"] for step in found["steps"]] == STEPS
    assert found["document"] == FLOW
    assert (found["question"], found["asks"]) == ("Ship to Oslo?", "agree")
    assert found["waits"] == [{"step": "agree", "kind": "approval", "event": None, "until": None}]
    assert found["actions"] == ["cancel", "approve"]
    assert found["counts"] == {"completed": 2, "running": 1, "pending": 2}
    assert found["inputs"] == {"city": "Oslo"}
    shown = steps(found)
    assert [shown[name]["status"] for name in STEPS] == ["completed"] * 4 + ["running", "pending", "pending"]
    assert [shown[name]["needs"] for name in ("boxes", "boxes[0]", "ship")] == [["pack"], [], ["agree"]]
    assert (shown["boxes[1]"]["parent"], shown["boxes[1]"]["depth"], shown["boxes[1]"]["output"]) == (
        "boxes",
        1,
        "blue box",
    )
    lines = FLOW.splitlines()
    assert lines[shown["pack"]["line"] - 1].strip().startswith("- name: pack")
    assert lines[shown["pack"]["lastLine"] - 1].strip().startswith("verification:")
    assert shown["agree"]["line"] == shown["agree"]["lastLine"]
    assert shown["boxes[0]"]["line"] == shown["boxes"]["line"]
    assert shown["pack"]["verification"] == {
        "type": "output_contains",
        "value": "packed",
        "description": None,
        "passed": True,
    }


async def test_a_decision_is_handed_in_beside_the_rest_and_once(desk: Desk) -> None:
    (desk.folder / "ready").write_text("gone")
    run = await desk.begun()
    await desk.decided(run)
    found = await desk.once(run, "completed")
    assert steps(found)["agree"]["output"] == "fine"
    assert (found["output"], found["question"], found["actions"]) == ("billed", None, ["again"])
    answer = await desk.ask("POST", f"/api/runs/{run}/approvals/agree", {"approved": True})
    assert answer.status == 409


async def test_failed_steps_show_attempts_and_prompts(desk: Desk) -> None:
    found = await desk.failed()
    assert found["status"] == "failed"
    assert "ship" in found["error"]
    assert [steps(found)[name]["status"] for name in ("ship", "bill")] == ["failed", "skipped"]
    detail = await desk.read(f"/api/runs/{found['id']}/steps/ship")
    assert (detail["input"], detail["attempts"]) == ("cat ready", 2)
    assert [(one["attempt"], one["status"], one["exitCode"]) for one in detail["tries"]] == [
        (1, "failed", 1),
        (2, "failed", 1),
    ]
    assert "ready" in detail["output"] or "ready" in detail["error"]
    box = await desk.read(f"/api/runs/{found['id']}/steps/boxes[1]")
    assert (box["item"], box["input"], box["output"]) == ("blue", "echo blue box", "blue box")
    assert (await desk.read(f"/api/runs/{found['id']}/steps/agree"))["input"] == "Ship to Oslo?"
    assert (await desk.ask("GET", f"/api/runs/{found['id']}/steps/nothing")).status == 404


async def test_timelines_have_a_segment_per_attempt(desk: Desk) -> None:
    run = await desk.begun()
    await desk.once(run, "input-required")
    live = {lane["id"]: lane for lane in (await desk.read(f"/api/runs/{run}/timeline"))["lanes"]}
    assert [(one["state"], one["end"]) for one in live["agree"]["segments"]] == [("input-required", None)]
    assert live["ship"]["segments"] == []
    assert live["boxes[0]"]["parent"] == "boxes"
    await desk.decided(run)
    await desk.once(run, "failed")
    found = await desk.read(f"/api/runs/{run}/timeline")
    lanes = {lane["id"]: lane["segments"] for lane in found["lanes"]}
    assert list(lanes) == STEPS
    assert [one["state"] for one in lanes["ship"]] == ["failed", "submitted", "failed"]
    assert [one["state"] for one in lanes["agree"]] == ["completed"]
    assert lanes["bill"] == []
    ends = [one for segments in lanes.values() for one in segments]
    assert all(one["begin"] <= one["end"] <= found["now"] for one in ends)


async def test_step_changes_are_run_events(desk: Desk) -> None:
    run = (await desk.failed())["id"]
    events = (await desk.read(f"/api/tasks/{run}/events", query="limit=200"))["items"]
    told = [about for one in events if (about := (one["body"].get("metadata") or {}).get("workflow"))]
    started = [step for about in told for step in about.get("started", ())]
    ended = [(about["step"], about["status"]) for about in told if "status" in about]
    assert sorted(started) == sorted([*STEPS[:-1], "ship"])  # which is begun twice
    assert sorted(ended) == sorted(
        [(name, "completed") for name in STEPS[:5]] + [("ship", "retrying"), ("ship", "failed"), ("bill", "skipped")]
    )


async def test_a_run_that_is_cancelled_leaves_its_step_cancelled(desk: Desk) -> None:
    run = await desk.begun()
    await desk.once(run, "input-required")
    body = {"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": {"id": run}}
    headers = {"A2A-Version": "1.0", "Host": "localhost:8000"}
    assert "error" not in (await call(desk.app, json.dumps(body).encode(), headers=headers)).json()
    found = await desk.once(run, "canceled")
    assert steps(found)["agree"]["status"] == "cancelled"
    assert found["actions"] == ["rerun", "again"]


# --- beginning runs ---------------------------------------------------------------------------------------------------


async def test_refused_runs_give_a_reason(desk: Desk) -> None:
    run = await desk.begun(inputs={"town": "Oslo"})
    found = await desk.once(run, "rejected")
    assert "town" in found["error"]
    assert (found["steps"], found["actions"], found["document"]) == ([], [], FLOW)
    assert (await desk.read(f"/api/runs/{run}/timeline"))["lanes"] == []
    assert (await desk.ask("POST", f"/api/runs/{run}/rerun", {})).status == 409
    assert (await desk.ask("POST", "/api/runs", {"workflow": "nothing"})).status == 404
    assert (await desk.ask("POST", "/api/runs", {"workflow": "shipping", "vars": {"a": 1}})).status == 422


async def test_failed_runs_continue_in_a_new_run(desk: Desk) -> None:
    first = await desk.failed()
    (desk.folder / "ready").write_text("gone")
    run = await desk.rerun(first["id"])
    found = await desk.once(run, "completed")
    assert found["previous"] == first["id"]
    reused = {name for name, step in steps(found).items() if step["isReused"]}
    assert reused == {"pack", "boxes", "boxes[0]", "boxes[1]", "agree"}
    assert found["inputs"] == {"city": "Oslo"}
    again = await desk.ask("POST", f"/api/runs/{run}/rerun", {})
    assert again.status == 409  # nothing of it is left to do


async def test_a_run_can_be_done_again_from_a_step_on_or_altogether(desk: Desk) -> None:
    (desk.folder / "ready").write_text("gone")
    first = await desk.begun()
    await desk.decided(first)
    await desk.once(first, "completed")
    assert await desk.read(f"/api/runs/{first}/rerun", query="from=ship") == {
        "again": ["ship", "bill"],
        "kept": ["pack", "boxes", "agree"],
        "approvals": ["agree"],
    }
    whole = await desk.read(f"/api/runs/{first}/rerun", query="fresh=true")
    assert whole == {"again": ["pack", "boxes", "agree", "ship", "bill"], "kept": [], "approvals": []}
    later = await desk.once(await desk.rerun(first, **{"from": "ship"}), "completed")
    assert [step["name"] for step in later["steps"] if not step["isReused"]] == ["ship", "bill"]
    fresh = await desk.once(await desk.rerun(first, fresh=True), "input-required")
    assert fresh["previous"] is None
    assert not any(step["isReused"] for step in fresh["steps"])
    refused = await desk.ask("POST", f"/api/runs/{first}/rerun", {"from": "nothing"})
    assert (refused.status, "nothing" in refused.json()["detail"]) == (422, True)
    assert (await desk.ask("POST", f"/api/runs/{fresh['id']}/rerun", {})).status == 409  # it has not ended


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_runs_are_listed_page_by_page_newest_first(desk: Desk) -> None:
    begun = [await desk.begun() for _ in range(3)]
    for run in begun:
        await desk.once(run, "input-required")
    page = await desk.read("/api/runs", query="limit=2")
    assert [row["id"] for row in page["items"]] == begun[:0:-1]
    assert [row["counts"] for row in page["items"]] == [{"completed": 2, "running": 1, "pending": 2}] * 2
    rest = await desk.read("/api/runs", query=f"limit=2&page={page['next']}")
    assert ([row["id"] for row in rest["items"]], rest["next"]) == (begun[:1], None)
    await desk.decided(begun[0], approved=False)
    await desk.once(begun[0], "failed")
    failed = await desk.read("/api/runs", query="state=failed&state=canceled")
    assert [(row["id"], row["workflow"], row["slug"]) for row in failed["items"]] == [
        (begun[0], "shipping/main", "shipping")
    ]
    assert failed["items"][0]["waits"] == []
    assert len((await desk.read("/api/runs", query="workflow=shipping"))["items"]) == 3
    assert (await desk.read("/api/runs", query="workflow=other"))["items"] == []
    assert (await desk.ask("GET", "/api/runs", query="state=odd")).status == 422


async def test_runs_are_visible_only_to_their_owner(guarded: Desk) -> None:
    run = await guarded.begun(by="alice")
    await guarded.once(run, "input-required", by="alice")
    for other in ("bob", "carol", "rita"):
        assert (await guarded.read("/api/runs", by=other))["items"] == []
        for path in ("", "/timeline", "/steps/pack"):
            assert (await guarded.ask("GET", f"/api/runs/{run}{path}", by=other)).status == 404
        assert (await guarded.ask("POST", f"/api/runs/{run}/rerun", {}, by=other)).status == 404
        decision = {"approved": True}
        assert (await guarded.ask("POST", f"/api/runs/{run}/approvals/agree", decision, by=other)).status == 404
    assert (await guarded.ask("GET", "/api/runs")).status == 401
    shown = await guarded.read(f"/api/runs/{run}", by="dora")  # an admin of the tenant
    assert shown["actions"] == ["cancel", "approve"]
    assert [row["id"] for row in (await guarded.read("/api/runs", by="dora"))["items"]] == [run]


async def test_starting_a_run_needs_the_role(guarded: Desk) -> None:
    body = {"workflow": "shipping", "inputs": {"city": "Oslo"}}
    assert (await guarded.ask("POST", "/api/runs", body, by="rita")).status == 403
    first = await guarded.failed(by="alice")
    assert (await guarded.read(f"/api/runs/{first['id']}", by="dora"))["actions"] == []
    assert (await guarded.ask("POST", f"/api/runs/{first['id']}/rerun", {}, by="dora")).status == 409


async def test_without_a_console_decisions_are_still_taken(tmp_path: Path) -> None:
    async for desk in serving(tmp_path, console={"enabled": False}):
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"city": "Oslo"}}]}
        params = {"message": message, "configuration": {"returnImmediately": False}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        headers = {"A2A-Version": "1.0", "Host": "localhost:8000"}
        task = (await call(desk.app, json.dumps(body).encode(), headers=headers)).json()["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answer = await desk.ask("POST", f"/api/runs/{task['id']}/approvals/agree", {"approved": False})
        assert answer.status == 204
        assert (await desk.ask("GET", f"/api/runs/{task['id']}")).status == 404


RULED = """
version: "1.0"
name: shipping
swarm: {pattern: dag}
workflows:
  - name: main
    steps:
      - {name: first, type: approval, task: "Begin?"}
      - {name: agree, type: approval, task: "Ship?", approvers: [shipper], notByStarter: true, dependsOn: [first]}
      - {name: ship, type: deterministic, command: "echo shipped", dependsOn: [agree]}
"""


async def test_a_run_is_approved_by_another_caller_with_the_role(tmp_path: Path) -> None:
    roles = {"alice": ["user", "shipper"], "bob": ["shipper"], "dora": ["admin"], "rita": ["user"]}
    people = [{"secret": SECRETS[name], "owner": name, "tenant": "t", "roles": held} for name, held in roles.items()]
    schemes = [{"type": "header", "name": "X-Secret", "secrets": people}]
    shipper = {"name": "shipper", "operations": ["GetTask"]}
    (tmp_path / "shipping.yaml").write_text(RULED)
    app = to_a2a(tmp_path / "shipping.yaml", auth={"schemes": schemes, "roles": [shipper]})
    async with lifespan(app):
        desk = Desk(app, tmp_path)
        run = await desk.begun(by="alice", inputs={})

        async def decides(name: str, step: str) -> int:
            answer = await desk.ask("POST", f"/api/runs/{run}/approvals/{step}", {"approved": True}, by=name)
            return answer.status

        await desk.once(run, "input-required", by="alice")
        assert await decides("bob", "first") == 404  # no rule of this step lets others decide it
        assert await decides("alice", "first") == 204

        async def asks() -> bool:
            return bool((await desk.read(f"/api/runs/{run}", by="alice"))["asks"] == "agree")

        await until(asks)
        shown = await desk.read(f"/api/runs/{run}", by="alice")
        assert (shown["question"], shown["actions"]) == (
            "Ship? (decided by a caller with the role shipper other than the owner of the run, "
            "in the console or with the runs API, not by a message)",
            ["cancel"],
        )
        task = await desk.read(f"/api/tasks/{run}", by="alice")
        assert (task["waiting"], "approve" in task["actions"]) == ("approval", False)
        assert [await decides(name, "agree") for name in ("alice", "dora", "rita")] == [403, 403, 404]
        reply = {"messageId": "m", "role": "ROLE_USER", "taskId": run, "parts": [{"data": {"approved": True}}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": reply}}
        headers = {"A2A-Version": "1.0", "Host": "localhost:8000", "X-Secret": SECRETS["alice"]}
        sent = (await call(app, json.dumps(body).encode(), headers=headers)).json()["result"]["task"]
        assert sent["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert await decides("bob", "agree") == 204
        assert (await desk.once(run, *ENDED, by="alice"))["output"] == "shipped"
        answer = await desk.ask("POST", f"/api/runs/{run}/rerun", {"from": "ship"}, by="alice")
        assert answer.status == 422
        assert "comes after the approval agree" in answer.json()["detail"]


OUTER = """
version: "1"
name: outer
swarm: {pattern: dag}
workflows: [{name: main, steps: [{name: inner, type: workflow, file: shipping.yaml}]}]
"""


async def test_an_approval_of_a_workflow_in_another_is_held_to_its_rules(tmp_path: Path) -> None:
    (tmp_path / "shipping.yaml").write_text(
        RULED.replace("first, type: approval", "first, type: deterministic").replace('task: "Begin?"', "command: echo")
    )
    (tmp_path / "outer.yaml").write_text(OUTER)
    app = to_a2a(tmp_path / "outer.yaml", auth={"schemes": SCHEMES})
    async with lifespan(app):
        desk = Desk(app, tmp_path)
        run = await desk.begun(by="alice", workflow="outer", inputs={})
        await desk.once(run, "input-required", by="alice")
        task = await desk.read(f"/api/tasks/{run}", by="alice")
        assert (task["waiting"], "approve" in task["actions"]) == ("approval", False)


async def test_a_setting_lets_no_owner_approve(tmp_path: Path) -> None:
    async for desk in serving(tmp_path, auth={"schemes": SCHEMES}, approvals={"not_by_starter": True}):
        run = await desk.begun(by="alice")
        await desk.once(run, "input-required", by="alice")
        said = {"approved": True}
        assert (await desk.ask("POST", f"/api/runs/{run}/approvals/agree", said, by="alice")).status == 403
        await desk.decided(run, by="dora")  # an admin of the tenant
