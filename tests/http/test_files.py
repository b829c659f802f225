"""Files at signed addresses (B-02): every one that a vault caller is told is found, and no other can be made of it."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from accord import Context, agent
from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.engine.task_store import TaskStore
from accord.engine.webhook_delivery import WebhookDelivery
from accord.http.files import PREVIEW_TYPES, RENEWALS, ExpiredUrl, FileLinks, FilePage, UnsignedUrl, download
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.webhooks import HttpWebhookSender
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    Message,
    Part,
    PushConfig,
    PushFormat,
    Role,
    SubscribeRequest,
    Task,
    TaskPage,
    TaskState,
    TaskStatus,
)
from accord.model.task import parts_of
from accord.outbound import HttpSession
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from accord.service.host import Host
from accord.storage.blobs import THRESHOLD, BlobMissing
from accord.storage.store import StoreUnavailable
from accord.testing import Response, call
from tests.cases import each
from tests.engine.conftest import ALICE, Hosting, all_of, bounded, hosting, postgres, saying
from tests.environments import judge
from tests.http.scripted import Scripted
from tests.http.test_push_sender import DEVELOPMENT, TASK, Receiver, receiver, receiving

__all__ = ["hosting", "postgres", "receiver", "receiving"]

URL = "https://agents.example/team"
DAY = 86_400
AT = 1_700_000_000.0
SMALL = Part(raw=b"<h1>hi</h1>", filename="page.html", media_type="text/html")
LARGE = Part(raw=b"\x00\xff" * THRESHOLD, media_type="application/zip")


def links(key: bytes = b"a key of the tests", at: float = AT, seconds: float = DAY) -> FileLinks:
    return FileLinks(key, URL, seconds, lambda: at)


def address(part: Part) -> str:
    """Return the path below the mount at which a part is."""
    assert part.url is not None
    assert part.raw is None
    assert part.url.startswith(f"{URL}/files/")
    return part.url.removeprefix(URL)


async def fetched(files: FilePage, path: str, method: str = "GET") -> Response:
    return await call(files, method=method, path=path)


@agent(name="Maker", description="Makes files")
async def maker(ctx: Context) -> AsyncIterator[Part]:
    await ctx.status(Part(raw=b"half way", media_type="text/plain"))
    await ctx.say(Part(raw=b"by the way"))
    await ctx.artifact(Part(raw=b"first draft"), id="page")
    await ctx.artifact(LARGE, id="large")
    await ctx.flush()
    await ctx.artifact(SMALL, id="page")  # in the place of the draft
    await ctx.artifact(Part(raw=SMALL.raw, filename="same.txt", media_type="text/plain"), id="page", append=True)
    yield Part(raw=b"", filename="empty")


async def made(host: Host) -> tuple[Task, list[Event]]:
    """Have the files made; return the task and everything that those saw who followed it."""
    task = await host.default.send(saying("", parts=(Part(raw=b"given"), Part(text="go"))), ALICE)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    return task, await all_of(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, 0))


@pytest.mark.proves("B-02")
@bounded
async def test_announced_files_are_at_their_address(hosting: Hosting) -> None:
    host = await hosting(maker)
    task, events = await made(host)
    files = FilePage(host.node.task_store, links())
    told = [task, *(event.body for event in events)]
    whole = [part for value in told for part in parts_of(value)]
    linked = [part for value in told for part in parts_of(links().linked(value, ALICE.tenant))]
    found = {}
    for part, file in zip(whole, linked, strict=True):
        if part.raw is None:
            assert file is part
            continue
        assert (file.filename, file.media_type, file.metadata) == (part.filename, part.media_type, part.metadata)
        answer = await fetched(files, address(file))
        assert (answer.status, answer.body) == (200, part.raw)
        assert answer.headers["content-disposition"].endswith(part.filename or "file")
        found[part.raw[:20]] = answer.headers["content-type"]
    assert {b"given", b"half way", b"by the way", b"first draft", b"\x00\xff" * 10, SMALL.raw, b""} == {*found}


@pytest.mark.proves("B-02", "2-33")
@bounded
async def test_agentvault_s_models_accept_the_file_parts(hosting: Hosting) -> None:
    host = await hosting(maker)
    task, events = await made(host)
    vault = DIALECTS[DialectName.VAULT]
    names = {"task_status": "TaskStatusUpdateEvent", "task_message": "TaskMessageEvent"}
    frames = [vault.encode_event(links().linked(event, ALICE.tenant)) for event in events]
    wires = [("Task", vault.push_task(links().linked(task, ALICE.tenant)))]
    wires += [(names.get(frame.event or "", "TaskArtifactUpdateEvent"), frame.data) for frame in frames if frame]
    assert len(wires) > 8
    asked = [{"type": kind, "json": json.loads(wire)} for kind, wire in wires]
    assert judge("agentvault", "vault.py", asked) == [None] * len(asked)
    written = asked[0]["json"]
    assert isinstance(written, dict)
    assert [part["type"] for part in written["messages"][0]["parts"]] == ["file", "text"]
    assert [artifact["type"] for artifact in written["artifacts"]] == ["parts", "file", "file"]
    assert '"bytes"' not in json.dumps(asked)


@pytest.mark.proves("B-02")
@bounded
async def test_an_address_opens_one_file_of_one_task_of_one_tenant(hosting: Hosting) -> None:
    host = await hosting(maker)
    task, _ = await made(host)
    other = await host.default.send(saying("", parts=(Part(raw=b"another's"),)), ALICE)
    assert isinstance(other, Task)
    files, signing = FilePage(host.node.task_store, links()), links()
    for value, tenant in [
        (task, "another tenant"),
        (Task(id="no-such-task", status=task.status, artifacts=task.artifacts), ALICE.tenant),
        (Task(id=task.id, status=other.status, history=other.history[:1]), ALICE.tenant),
    ]:
        paths = [address(part) for part in parts_of(signing.linked(value, tenant)) if part.url]
        assert paths
        assert {(await fetched(files, path)).status for path in paths} == {404}


@pytest.mark.proves("B-02")
@bounded
async def test_an_address_that_is_changed_anywhere_is_refused(hosting: Hosting) -> None:
    host = await hosting(maker)
    task, _ = await made(host)
    files = FilePage(host.node.task_store, links())
    path = address(links().linked(task, ALICE.tenant).artifacts[0].parts[0])
    assert path.endswith("/page.html")
    assert (await fetched(files, path)).status == 200
    for at, letter in enumerate(path):
        for changed in (path[:at] + ("A" if letter != "A" else "B") + path[at + 1 :], path[:at] + path[at + 1 :]):
            assert (await fetched(files, changed)).status == 403, changed
    for changed in (path + "/", path + "x", path.replace("/page.html", ""), path.replace(".", "", 1), "/files/"):
        assert (await fetched(files, changed)).status == 403, changed
    # The last letter of a signature has two bits that decode to nothing.
    signature = path.split("/")[2]
    twins = [signature[:-1] + letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"]
    answers = [(await fetched(files, f"/files/{twin}/page.html")).status for twin in twins]
    assert sorted(answers) == [200] + [403] * 63


@pytest.mark.proves("B-02")
@bounded
async def test_an_address_is_good_until_it_expires(hosting: Hosting) -> None:
    host = await hosting(maker)
    task, _ = await made(host)
    task_store = host.node.task_store

    def told(at: float) -> str:
        return address(links(at=at).linked(task, ALICE.tenant).artifacts[1].parts[0])

    path = told(AT)
    for later, status in [(DAY - 1, 200), (DAY + DAY / RENEWALS + 1, 410)]:
        assert (await fetched(FilePage(task_store, links(at=AT + later)), path)).status == status
    begun = AT - AT % (DAY / RENEWALS)
    assert len({told(begun), told(begun + 1), told(begun + DAY / RENEWALS - 1)}) == 1, "who asks again is told the same"
    assert told(begun) != told(begun + DAY / RENEWALS)
    assert (await fetched(FilePage(task_store, links(b"another key")), path)).status == 403
    with pytest.raises(UnsignedUrl):
        links(b"another key", at=AT + 2 * DAY).read(path)
    with pytest.raises(ExpiredUrl):
        links(at=AT + 2 * DAY).read(path)


@pytest.mark.proves("B-02")
@bounded
async def test_artifacts_are_downloads_and_never_executed(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = await hosting(maker)
    task, _ = await made(host)
    task_store = host.node.task_store
    files = FilePage(task_store, links())
    path = address(links().linked(task, ALICE.tenant).artifacts[0].parts[0])
    whole, head = await fetched(files, path), await fetched(files, path, "HEAD")
    assert {name: whole.headers[name] for name in whole.headers if name != "content-length"} == {
        "content-type": "text/plain; charset=utf-8",
        "content-disposition": "attachment; filename*=UTF-8''page.html",
        "content-security-policy": "sandbox; default-src 'none'",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
    }
    assert (head.status, head.body, head.headers) == (200, b"", whole.headers)
    refused = await fetched(files, path, "POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")

    async def away(*_: Any) -> None:
        raise StoreUnavailable("gone for now")

    async def lost(*_: Any) -> None:
        raise BlobMissing("not where it was put")

    monkeypatch.setattr(TaskStore, "file", away)
    later = await fetched(files, path)
    assert (later.status, later.headers["retry-after"]) == (503, "1")
    monkeypatch.setattr(TaskStore, "file", lost)
    assert (await fetched(files, path)).status == 500
    assert [record.message for record in caplog.records if record.exc_info] == ["request.failed"]
    assert path not in caplog.text


SCRIPTS = [
    *("text/javascript", "application/javascript", "text/ecmascript", "application/x-javascript", "text/jscript"),
    *("text/css", "text/html", "application/xhtml+xml", "text/xml", "application/xml", "application/wasm"),
    *("text/xsl", "image/x+xml", "multipart/x-mixed-replace", "application/manifest+json", "text/cache-manifest"),
]
"""Types as which a browser runs a file, or has it change a page, in the origin of that page."""


@each("kind", SCRIPTS)
def test_no_file_is_a_script_in_the_origin_of_the_console(kind: str) -> None:
    for inline in (False, True):
        _, found = download(Part(raw=b"alert(1)", media_type=kind), "file.js", inline=inline)
        headers = dict(found)
        if not (inline and kind in PREVIEW_TYPES):
            assert headers[b"content-type"] in (b"text/plain; charset=utf-8", b"application/octet-stream")
            assert inline or headers[b"content-disposition"].startswith(b"attachment")
        assert headers[b"content-security-policy"].startswith(b"sandbox; default-src 'none'")


@each(
    ("stated", "answered"),
    [
        ("text/csv; charset=iso-8859-1", "text/csv; charset=iso-8859-1"),
        ('text/csv; header=present; CHARSET="x"', "text/csv; charset=x"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("image/png", "image/png"),
        ("no type at all\r\n", "application/octet-stream"),
        (None, "application/octet-stream"),
        ("video/mp4", "video/mp4"),
        ("image/svg+xml", "image/svg+xml"),  # attached, in a sandbox: a page can use it as an image
        ("application/pdf", "application/pdf"),
        ("Application/JSON", "application/json"),
        ("image/x\r\nSet-Cookie: a=b", "application/octet-stream"),
        *((script, "text/plain; charset=utf-8") for script in SCRIPTS if script.startswith("text/")),
        *((script, "application/octet-stream") for script in SCRIPTS if not script.startswith("text/")),
    ],
)
def test_files_have_the_stated_media_type(stated: str | None, answered: str) -> None:
    _, headers = download(Part(raw=b"x", media_type=stated), "file")
    assert dict(headers)[b"content-type"].decode() == answered


@each("filename", ["../../etc/passwd", "..", ".hidden", "a b.txt", "ä.txt", "x" * 200, "a/b", ""])
def test_unsafe_file_names_are_left_out_of_addresses(filename: str) -> None:
    task = Task(
        id="t", status=TASK.status, artifacts=(Artifact(artifact_id="a", parts=(Part(raw=b"x", filename=filename),)),)
    )
    part = links().linked(task, "").artifacts[0].parts[0]
    assert address(part).endswith("/")
    assert urlsplit(part.url or "").path.count("/") == 4
    assert part.filename == filename
    assert links().read(address(part)).task_id == "t"


def test_unreferenced_files_have_no_address() -> None:
    said = Message(message_id="m", role=Role.AGENT, parts=(Part(raw=b"x"),))
    assert links().linked(said, "") is said
    assert links().linked(Event(seq=1, body=said), "").body is said
    page = TaskPage(
        tasks=(Task(id="t", status=TaskStatus(state=TaskState.WORKING, message=said)),),
        next_page_token="",
        page_size=1,
        total_size=1,
    )
    found = links().linked(page, "").tasks[0].status.message
    assert found is not None
    assert address(found.parts[0])


@pytest.mark.proves("B-02")
@bounded
@pytest.mark.parametrize(("named", "tenant"), [({}, "acme"), ({"tenant": "other"}, "other")])
async def test_file_addresses_belong_to_the_tenant(named: dict[str, str], tenant: str) -> None:
    async def admit(_: Presented) -> Caller:
        return Caller(tenant="acme", roams=True)

    rpc = JsonRpcBinding(Scripted(), admit=admit, links=links())
    params = {"includeArtifacts": True, **named}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tasks/list", "params": params}
    answer = await call(rpc, body, headers={"X-A2A-Dialect": "vault"})
    told = answer.json()["result"]["tasks"][0]["artifacts"][0]["content"][1]
    assert (told["type"], told["mediaType"]) == ("file", "image/png")
    assert links().read(told["url"].removeprefix(URL)).tenant == tenant


def test_only_vault_needs_addresses() -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.links_files] == [DialectName.VAULT]


@pytest.mark.proves("B-02", "B-10")
@pytest.mark.parametrize("form", [PushFormat.TASK, PushFormat.EVENT])
@bounded
async def test_webhooks_get_addresses_in_vault_and_bytes_in_others(receiver: Receiver, form: PushFormat) -> None:
    artifact = Artifact(artifact_id="a", parts=(SMALL,))
    task = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(artifact,))
    event = Event(seq=7, body=ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=artifact))
    config = PushConfig(url=receiver.url, payload_format=form)
    async with HttpSession.strict(DEVELOPMENT, total_seconds=10) as outbound:
        sender = HttpWebhookSender(outbound, links=links())
        for dialect in ("vault", "v1"):
            await sender.send(
                WebhookDelivery(tenant="acme", config=config, dialect=dialect, event=event, task=task, attempt=1)
            )
    vault, v1 = receiver.bodies
    assert b'"raw"' in v1
    body = json.loads(vault)
    told = body["artifacts"][0] if form is PushFormat.TASK else body["artifact"]
    assert (told["type"], told["mediaType"]) == ("file", "text/html")
    assert links().read(told["url"].removeprefix(URL)).tenant == "acme"
