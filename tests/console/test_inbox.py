"""The inbox: everything that waits for a person, once, where it can be answered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from accord import Context, agent
from tests.console.conftest import AGENTS, Asking, serving
from tests.engine.doubles import until

FLOW = """\
version: "1"
name: shipping
swarm: { pattern: dag }
workflows:
  - name: main
    steps:
      - { name: agree, type: approval, task: "Ship it?" }
      - { name: pay, type: approval, task: "Pay for it?" }
      - { name: done, type: deterministic, command: echo done, dependsOn: [agree, pay] }
"""


@agent(name="Keyholder", description="Needs credentials")
async def keyholder(ctx: Context) -> str:
    return (await ctx.require_auth("Which key?")).text


@pytest.fixture
async def office(address: str, tmp_path: Path) -> AsyncIterator[Asking]:
    """A server with agents that ask, and a workflow with two approvals at once."""
    flow = tmp_path / "shipping.yaml"
    flow.write_text(FLOW)
    from accord.agents.loader import as_agent

    async with serving(address, *AGENTS, keyholder, as_agent(flow, "shipping", {})) as server:
        yield server


async def questions(server: Asking, count: int, by: str = "alice") -> list[dict[str, Any]]:
    """Wait until so many things wait, and return them."""
    found: list[dict[str, Any]] = []

    async def are_there() -> bool:
        nonlocal found
        found = (await server.get("/inbox", by=by))["items"]
        return len(found) == count

    await until(are_there)
    return found


async def test_inbox_questions_are_sorted_and_removed_when_answered(server: Asking) -> None:
    first = await server.begin("asker", "first")
    await server.reaches(first, "input-required")
    second = await server.begin("approver", "second")
    await server.reaches(second, "input-required")
    one, two = await questions(server, 2)
    assert (one["kind"], one["text"], one["task"]["id"]) == ("input", "For which day?", first)
    assert one["schema"] == {"type": "object", "properties": {"day": {"type": "string"}}}
    assert (two["kind"], two["text"], two["schema"]) == ("approval", "Send it?", None)
    assert (two["run"], two["step"]) == (None, None)
    assert one["since"] <= two["since"]
    await server.post(f"/tasks/{first}/reply", {"text": "Monday"})
    assert [item["task"]["id"] for item in await questions(server, 1)] == [second]
    for somebody in ("bob", "carol"):
        assert (await server.get("/inbox", by=somebody))["items"] == []
    assert [item["task"]["id"] for item in (await server.get("/inbox", by="dora"))["items"]] == [second]


@agent(name="Twice", description="Asks for two approvals")
async def twice(ctx: Context) -> str:
    return f"{bool(await ctx.approve('Stage it?'))} {bool(await ctx.approve('Ship it?'))}"


async def test_an_answer_decides_no_question_that_its_sender_has_not_seen(address: str) -> None:
    async with serving(address, twice) as server:
        task_id = await server.begin("twice", "go")
        await server.reaches(task_id, "input-required")
        (first,) = await questions(server, 1)
        decision = {"question": first["message"], "data": {"approved": True}}
        await server.post(f"/tasks/{task_id}/reply", decision)

        second = first
        while second["text"] != "Ship it?":
            (second,) = await questions(server, 1)
        assert second["id"] != first["id"]
        assert second["task"]["question"]["id"] == second["message"]
        late = await server("POST", f"/tasks/{task_id}/reply", decision)
        assert (late.status, late.json()["detail"]) == (
            400,
            "The task asks another question by now: read its status again",
        )
        await server.post(f"/tasks/{task_id}/reply", {"question": second["message"], "data": {"approved": False}})
        assert (await server.reaches(task_id))["result"] == "True False"


async def test_forwarded_questions_are_shown_once(server: Asking) -> None:
    task_id = await server.begin("leader")
    asking = await server.reaches(task_id, "input-required")
    assert asking["children"][0]["status"] == "input-required"
    (item,) = await questions(server, 1)
    assert (item["task"]["id"], item["text"]) == (task_id, "For which day?")


@pytest.mark.proves("1-60")
async def test_the_inbox_lists_run_approvals_and_agent_questions(office: Asking) -> None:
    key = await office.begin("keyholder")
    await office.reaches(key, "auth-required")
    run = await office.begin("shipping", "go")
    await office.reaches(run, "input-required")
    found = await questions(office, 3)
    assert (found[0]["kind"], found[0]["task"]["id"], found[0]["run"]) == ("auth", key, None)
    by_step = {item["step"]: item for item in found[1:]}
    assert set(by_step) == {"agree", "pay"}
    assert all(item["kind"] == "approval" and item["run"] == run for item in by_step.values())
    assert all(item["task"]["isRun"] for item in by_step.values())
    rows = {row["id"]: row for row in (await office.get("/tasks", query="top=1"))["items"]}
    assert (rows[run]["isRun"], rows[key]["isRun"]) == (True, False)  # both in one list
    for step in ("pay", "agree"):
        decided = await office("POST", f"/runs/{run}/approvals/{step}", {"approved": True})
        assert decided.status == 204, decided.body
        left = {item["step"] for item in await questions(office, 2 if step == "pay" else 1)}
        assert step not in left
    assert (await office.reaches(run))["status"] == "completed"
