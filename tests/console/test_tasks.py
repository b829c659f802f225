"""Tasks as people look at them over HTTP: lists, one with all that belongs to it, files, and what can be done."""

from typing import Any

import pytest

from accord import Context, agent
from accord.http.asgi import Receive, Scope, Send
from accord.model import TaskState, TaskStatus
from accord.storage.commands import task_endings
from accord.storage.commands.task_endings import EndRequest
from accord.storage.store import Tx
from accord.testing import call
from tests.console.conftest import HTML, PNG, Asking, serving

Server = Asking


def titles(page: dict[str, Any]) -> list[str]:
    return [row["title"] for row in page["items"]]


@pytest.mark.proves("0-12", "0-38", "0-78")
async def test_one_task_is_shown_as_a_row_with_all_that_belongs_to_it(server: Server) -> None:
    made = await server.done("echo", "hello\n there")
    assert made["title"] == "hello there"
    assert (made["status"], made["statusMessage"], made["result"]) == ("completed", None, "hello\n there")
    assert (made["agent"], made["slug"], made["owner"]) == ("Echo", "echo", "alice")
    assert made["contextId"]
    assert made["createdAt"] <= made["updatedAt"]
    assert made["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert made["actions"] == ["retry"]
    assert (made["children"], made["chatId"], made["webhooks"], made["parentId"]) == ([], None, 0, None)
    assert "token" not in str(made).lower()
    await server.get("/tasks/nothing", 404)


async def test_a_task_whose_node_is_gone_waits_to_resume(server: Server) -> None:
    asked = await server.reaches(await server.begin("asker"), "input-required")
    assert not asked["waitsToResume"]

    async def lose_node(tx: Tx) -> None:
        await tx.run("UPDATE task SET state = 'working' WHERE id = :id", id=asked["id"])
        await tx.run("UPDATE snapshot SET doc = replace(doc, 'INPUT_REQUIRED', 'WORKING')")
        await tx.run("UPDATE event SET data = replace(data, 'INPUT_REQUIRED', 'WORKING')")
        await tx.run("UPDATE job SET node = 'gone', parked = 0 WHERE key = :id", id=asked["id"])

    await server.app.host.node.store.do(lose_node)
    lost = await server.get(f"/tasks/{asked['id']}")
    assert (lost["status"], lost["waitsToResume"]) == ("working", True)


@agent(name="Broken", description="Raises")
async def broken(ctx: Context) -> str:
    raise ValueError("cannot reach postgres://bob:hunter2@db\0")


async def test_only_operators_get_the_exception_of_a_task(address: str) -> None:
    async with serving(address, broken) as server:
        made = await server.done("broken", by="otto")
        assert made["statusMessage"] == "The agent failed"
        assert made["failure"]["exception"] == "ValueError: cannot reach postgres://bob:hunter2@db\\0"
        assert 'raise ValueError("cannot reach' in made["failure"]["traceback"]
        assert "async def broken" not in made["failure"]["traceback"]
        of_alice = await server.done("broken", by="alice")
        assert (of_alice["status"], of_alice["failure"]) == ("failed", None)
        of_dora = await server.get(f"/tasks/{of_alice['id']}", by="dora")  # an admin of one tenant
        events = await server.get(f"/tasks/{of_alice['id']}/events")
        assert "hunter2" not in f"{of_alice}{of_dora}{events}"


@pytest.mark.parametrize(("peer", "is_shown"), [("127.0.0.1", True), ("::1", True), ("203.0.113.9", False)])
async def test_an_open_server_shows_exceptions_to_its_own_machine(peer: str, is_shown: bool) -> None:
    async with serving("sqlite://:memory:", broken, auth={}) as server:

        async def by_peer(scope: Scope, receive: Receive, send: Send) -> None:
            await server.app({**scope, "client": (peer, 50_000)}, receive, send)

        task_id = await server.begin("broken")
        await server.reaches(task_id, "failed")
        shown = (await call(by_peer, method="GET", path=f"/api/tasks/{task_id}", headers=server.headers(""))).json()
        assert (shown["status"], shown["failure"] is not None) == ("failed", is_shown)


@pytest.mark.proves("0-46")
async def test_a_task_is_only_shown_to_whom_it_belongs(server: Server) -> None:
    made = await server.done("echo", "of alice")
    for path in ("", "/events", "/timeline", "/files/answer/0"):
        for somebody in ("bob", "carol"):
            await server.get(f"/tasks/{made['id']}{path}", 404, by=somebody)
    for action in ("cancel", "retry", "reply", "execute"):
        body = {"text": "x"} if action == "reply" else None
        for somebody in ("bob", "carol", "dora"):
            answer = await server("POST", f"/tasks/{made['id']}/{action}", body, by=somebody)
            # An admin of the tenant may end what others began, and nothing else.
            assert answer.status in ((400, 409) if (action, somebody) == ("cancel", "dora") else (400, 404)), (
                answer.body
            )
    assert titles(await server.get("/tasks", by="bob")) == []
    assert titles(await server.get("/tasks", by="carol")) == []
    assert titles(await server.get("/tasks", by="dora")) == ["of alice"]
    assert (await server.get(f"/tasks/{made['id']}", by="dora"))["actions"] == []
    assert (await server("GET", "/tasks", by="")).status == 401


@pytest.mark.proves("0-77")
async def test_tasks_are_found_by_conversation_state_agent_words_and_parent(server: Server) -> None:
    first = await server.done("echo", "about ships", contextId="c-1")
    await server.done("failing", "about paper", contextId="c-1")
    asked = await server.reaches(await server.begin("asker", "about days", contextId="c-2"), "input-required")

    async def found(query: str) -> list[str]:
        return titles(await server.get("/tasks", query=query))

    assert await found("") == ["about days", "about paper", "about ships"]
    assert await found("contextId=c-1") == ["about paper", "about ships"]
    assert await found("state=failed") == ["about paper"]
    assert await found("state=failed&state=input-required") == ["about days", "about paper"]
    assert await found("state=completed&state=failed") == ["about paper", "about ships"]
    assert await found("agent=echo&agent=asker") == ["about days", "about ships"]
    assert await found("agent=nobody") == []
    assert await found("q=SHIP") == ["about ships"]
    assert await found(f"q={first['id'][:13].upper()}") == ["about ships"]
    assert await found(f"q={first['id'][9:18]}") == ["about ships"]
    assert await found("q=nothing like it") == []
    assert await found(f"since={first['updatedAt']}") == ["about days", "about paper", "about ships"]
    assert await found("since=2999-01-01T00:00:00Z") == []
    assert await found(f"parent={asked['id']}") == []
    for wrong in ("state=odd", "limit=0", "since=yesterday"):
        assert (await server("GET", "/tasks", query=wrong)).status == 422


async def test_pages_follow_one_another_and_nothing_is_repeated(server: Server) -> None:
    for number in range(5):
        await server.done("echo", f"n {number}")
    seen, page, totals = [], "", []
    while True:
        found = await server.get("/tasks", query=f"limit=2&page={page}")
        seen += titles(found)
        totals.append(found["total"])
        if found["next"] is None:
            break
        page = found["next"]
    assert seen == [f"n {number}" for number in (4, 3, 2, 1, 0)]
    assert totals == [5, 5, 5]
    found = await server.get("/tasks", query="limit=1&q=n")
    assert (titles(found), found["total"]) == (["n 4"], 5)
    assert titles(await server.get("/tasks", query=f"limit=9&q=n&page={found['next']}")) == ["n 3", "n 2", "n 1", "n 0"]


async def test_a_question_is_shown_answered_and_ends_the_task(server: Server) -> None:
    task_id = await server.begin("asker")
    asking = await server.reaches(task_id, "input-required")
    assert (asking["waiting"], asking["statusMessage"]) == ("input", "For which day?")
    assert asking["actions"] == ["reply", "cancel"]
    assert (await server("POST", f"/tasks/{task_id}/reply", {})).status == 422
    answered = await server.post(f"/tasks/{task_id}/reply", {"data": {"day": "Monday"}})
    assert answered["id"] == task_id
    assert (await server.reaches(task_id))["result"] == "Booked for Monday"
    assert (await server("POST", f"/tasks/{task_id}/reply", {"text": "again"})).status == 400


async def test_tasks_end_with_a_reason_and_retry(server: Server) -> None:
    task_id = await server.begin("asker", "the words")
    await server.reaches(task_id, "input-required")
    assert (await server("POST", f"/tasks/{task_id}/retry")).status == 400
    ended = await server.post(f"/tasks/{task_id}/cancel", {"reason": "no longer needed"})
    assert (ended["status"], ended["statusMessage"]) == ("canceled", "no longer needed")
    assert ended["actions"] == ["retry"]
    again = await server.post(f"/tasks/{task_id}/retry", status=201)
    assert again["id"] != task_id
    assert (again["title"], again["contextId"]) == ("the words", ended["contextId"])
    await server.reaches(again["id"], "input-required")


@pytest.mark.proves("0-63")
async def test_an_unknown_task_can_be_canceled_as_well_as_retried(server: Server) -> None:
    task_id = await server.begin("asker", "the words")
    await server.reaches(task_id, "input-required")
    unknown = TaskStatus(state=TaskState.UNKNOWN)
    ending = EndRequest(task_id=task_id, status=unknown, at=1_700_000_000_000)
    await server.app.host.node.store.do(task_endings.end_task, "acme", ending)
    shown = await server.reaches(task_id, "unknown")
    assert shown["actions"] == ["cancel", "retry"]
    ended = await server.post(f"/tasks/{task_id}/cancel", {})
    assert (ended["status"], ended["actions"]) == ("canceled", ["retry"])


async def test_held_tasks_start_on_execute(server: Server) -> None:
    held = await server.post("/tasks", {"agent": "echo", "text": "later", "hold": True}, 201)
    assert (held["status"], held["waiting"], held["actions"]) == ("submitted", "execute", ["execute", "cancel"])
    begun = await server.post(f"/tasks/{held['id']}/execute")
    assert begun["waiting"] is None
    done = await server.reaches(held["id"])
    assert done["result"] == "later"
    again = await server.post(f"/tasks/{held['id']}/execute")
    assert (again["status"], again["seq"]) == ("completed", done["seq"])


async def test_approvals_are_marked(server: Server) -> None:
    task_id = await server.begin("approver")
    asking = await server.reaches(task_id, "input-required")
    assert (asking["waiting"], asking["actions"]) == ("approval", ["approve", "reply", "cancel"])
    message = asking["task"]["status"]["message"]["messageId"]
    assert asking["question"] == {"id": message, "text": "Send it?", "schema": None}
    await server.post(f"/tasks/{task_id}/reply", {"data": {"approved": True}})
    assert (await server.reaches(task_id))["result"] == "sent"


async def test_a_row_has_the_question_of_its_state(server: Server) -> None:
    async with server.listening() as ear:
        task_id = await server.begin("asker")
        row = await ear.hears("task", id=task_id, status="input-required")
        schema = {"type": "object", "properties": {"day": {"type": "string"}}}
        assert row["question"] == {"id": row["question"]["id"], "text": "For which day?", "schema": schema}
        await server.post(f"/tasks/{task_id}/reply", {"text": "Monday"})
        assert (await ear.hears("task", id=task_id, status="completed"))["question"] is None


async def test_an_agent_that_is_not_there_is_refused(quick: Asking) -> None:
    assert (await quick("POST", "/tasks", {"agent": "nobody", "text": "x"})).status == 422
    assert (await quick("POST", "/tasks", {"agent": "echo"})).status == 422


async def test_file_addresses_include_the_mount_path(quick: Server) -> None:
    made = await quick.done("maker")
    mount = {"path": f"/some/where/api/tasks/{made['id']}", "root_path": "/some/where"}

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await quick.app({**scope, **mount}, receive, send)

    shown = (await call(mounted, method="GET", headers=quick.headers("alice"), bound=30)).json()
    assert shown["task"]["artifacts"] == made["task"]["artifacts"]  # pages put the prefix before it, as in chats


async def test_files_have_addresses_and_are_saved_rather_than_shown(server: Server) -> None:
    made = await server.done("maker")
    by_id = {artifact["artifactId"]: artifact["parts"] for artifact in made["task"]["artifacts"]}
    picture, page = by_id["images/one"][0], by_id["page"][0]
    assert (picture["filename"], picture["size"]) == ("a picture.png", len(PNG))
    assert "raw" not in picture
    path = picture["url"].removeprefix("/api")
    got = await server("GET", path)
    assert got.body == PNG
    assert got.headers["content-type"] == "image/png"
    assert got.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20picture.png"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert (await server("GET", path, query="inline=1")).headers["content-disposition"].startswith("inline")
    html = page["url"].removeprefix("/api")
    saved, shown = await server("GET", html), await server("GET", html, query="inline=1")
    assert saved.headers["content-disposition"].startswith("attachment")
    assert shown.body == HTML.encode()
    assert shown.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert "script" not in shown.headers["content-security-policy"]
    text, data = by_id["numbers"]
    assert (text["text"], data["data"]) == ("words", {"total": 3})
    assert made["result"] == {"total": 3}
    assert (await server("GET", f"/tasks/{made['id']}/files/numbers/1")).json() == {"total": 3}
    for wrong in ("numbers/2", "nothing/0", "message/nothing/0"):
        assert (await server("GET", f"/tasks/{made['id']}/files/{wrong}")).status == 404


async def test_the_log_is_read_in_pages_with_the_time_between(server: Server) -> None:
    made = await server.done("reporter", "3")
    log = await server.get(f"/tasks/{made['id']}/events")
    assert [event["seq"] for event in log["items"]] == list(range(1, log["last"] + 1))
    assert log["first"] == 1
    said = [event["body"]["status"].get("message") for event in log["items"] if event["kind"] == "status"]
    assert [message["parts"][0]["text"] for message in said if message] == ["step 0", "step 1", "step 2"]
    assert log["items"][0]["gapMs"] is None
    assert all(event["gapMs"] >= 0 for event in log["items"][1:])
    rest = await server.get(f"/tasks/{made['id']}/events", query="after=2&limit=2")
    assert [event["seq"] for event in rest["items"]] == [3, 4]
    assert rest["items"][0]["gapMs"] is not None


async def test_the_waterfall_has_runs_waits_and_children(server: Server) -> None:
    task_id = await server.begin("leader")
    asking = await server.reaches(task_id, "input-required")
    (child,) = asking["children"]
    assert (child["agent"], child["parentId"]) == ("Asker", task_id)
    assert titles(await server.get("/tasks", query="top=1")) == ["hello"]
    assert titles(await server.get("/tasks", query=f"parent={task_id}")) == ["for me"]
    await server.post(f"/tasks/{task_id}/reply", {"text": "Tuesday"})
    await server.reaches(task_id)
    shown = await server.get(f"/tasks/{task_id}/timeline")
    lanes = [(lane["kind"], lane["label"]) for lane in shown["lanes"]]
    assert lanes[0] == ("task", "hello")
    assert ("wait", "Question 1") in lanes
    assert ("attempt", "Run 1") in lanes
    assert ("attempt", "Run 2") in lanes
    assert ("child", "Asker") in lanes
    states = [segment["state"] for segment in shown["lanes"][0]["segments"]]
    assert states[-1] == "completed"
    assert "input-required" in states
    times = [segment["begin"] for segment in shown["lanes"][0]["segments"]]
    assert times == sorted(times)
    assert shown["now"] >= times[-1]


@pytest.mark.proves("1-60")
async def test_tasks_of_members_of_others_can_be_looked_at(server: Server) -> None:
    """What an agent has others do is found beside what it does itself."""
    task_id = await server.begin("leader")
    (child,) = (await server.reaches(task_id, "input-required"))["children"]
    looked = await server.get(f"/tasks/{child['id']}")
    assert (looked["status"], looked["parentId"]) == ("input-required", task_id)
