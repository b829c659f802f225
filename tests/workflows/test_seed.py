"""Seed 001 end to end: its own documents, changed in nothing but addresses, with real agents at the other end."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from interop.processes import Peer
from tests.peers.conftest import servers, started
from tests.remote.test_gateway import ended, until
from tests.serve.running import Server, text_of
from tests.serve.running import running as served
from tests.workflows.proving import flow, ran
from tests.workflows.saying import DOCUMENTS
from tests.workflows.scenes import environment
from tests.workflows.standins import CLAUDE, CODEX, NPM, stood_in
from tests.workflows.wire import CANCEL, CARD, GET, SEND, STREAM, SUBSCRIBE, Wire, wired

__all__ = ["servers", "started"]

HERE = Path(__file__).parent
NEW, OLD = Peer("a2a_sdk"), Peer("a2a_sdk_03", "a2a-sdk-03")
INTRODUCED = "A2A agent: Parrot (Repeats what it is told)"

Starting = Callable[[Peer], str]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("ours"), f"{HERE / 'elsewhere.py'}:parrot") as server:
        yield server


@pytest.fixture
def before() -> Iterator[Callable[[str], Wire]]:
    """A function that puts a proxy before an agent."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(wired(url.rstrip("/")))


Before = Callable[[str], Wire]


def first_requests(wire: Wire) -> list[str]:
    """What was asked for first, without repetitions."""
    return list(dict.fromkeys(wire.order))[:2]


# --- its examples -----------------------------------------------------------------------------------------------------


@pytest.mark.proves(
    "1-01", "1-02", "1-06", "1-10", "1-23", "1-27", "1-28", "1-34", "1-35", "1-36", "1-37", "1-39", "1-41", "1-45"
)
async def test_the_hybrid_example_runs_unchanged(tmp_path: Path, started: Starting, before: Before) -> None:
    processor, summarizer = before(started(NEW)), before(started(OLD))
    text = (DOCUMENTS / "hybrid.yaml").read_text()
    text = text.replace("http://localhost:9000", processor.url).replace("http://localhost:9001", summarizer.url)
    env = stood_in(tmp_path, claude=CLAUDE, codex=CODEX, npm=NPM)
    run = await ran(text, tmp_path, env=env)
    assert run.state == "COMPLETED", run.why
    assert run.output == "5 passing"
    steps = ["plan", "fetch-data", "summarize", "implement", "test"]
    assert run.ends() == dict.fromkeys(steps, "completed")
    assert list(run.ends()) == steps
    # What each was told is what the one before it said.
    fetched = "You said Pull dataset from warehouse and return as JSON"
    assert processor.all(STREAM)[0].text == "Pull dataset from warehouse and return as JSON"
    assert summarizer.all(STREAM)[0].text == f"Summarize the data: {fetched}"
    prompt = (tmp_path / "codex.prompt").read_text()
    assert f"You said Summarize the data: {fetched}" in prompt
    assert "You are: Implements code changes" in prompt
    assert "Analyze the feature request" in (tmp_path / "claude.args").read_text()
    assert (tmp_path / "npm.args").read_text() == "test\n"
    # Each in its own version, streamed, after its card was read, and once.
    assert (processor.all(STREAM)[0].method, summarizer.all(STREAM)[0].method) == (
        "SendStreamingMessage",
        "message/stream",
    )
    for wire in (processor, summarizer):
        assert first_requests(wire) == [CARD, STREAM]
        assert (len(wire.all(STREAM)), len(wire.all(SEND))) == (1, 0)
    assert f"**[fetch-data]** {INTRODUCED}" in run.posts
    assert f"**[summarize]** {INTRODUCED}" in run.posts
    assert f"**[fetch-data]** Completed (a2a)\n{fetched}" in run.posts
    assert run.about("fetch-data")["exit_code"] == 0


@pytest.mark.proves("1-36")
async def test_missing_output_tokens_fail_the_step(tmp_path: Path, started: Starting, before: Before) -> None:
    wire = before(started(NEW))
    text = (DOCUMENTS / "hybrid.yaml").read_text()
    text = text.replace("http://localhost:9000", wire.url).replace("http://localhost:9001", wire.url)
    env = {**stood_in(tmp_path, claude=CLAUDE, codex=CODEX, npm=NPM), "CLAUDE_SAYS": "that is all"}
    text += '\nenv: {CLAUDE_SAYS: "${CLAUDE_SAYS}"}\n'
    run = await ran(text, tmp_path, env=env)
    assert run.state == "FAILED"
    assert run.why.startswith("Failed at plan: ")
    assert "PLAN_COMPLETE" in run.why
    assert run.ends() == {"plan": "failed"} | dict.fromkeys(("fetch-data", "summarize", "implement", "test"), "skipped")
    assert not wire.all(STREAM)
    assert not wire.all(SEND)
    assert not (tmp_path / "npm.args").exists()


@pytest.mark.proves("1-03", "1-12", "1-24", "1-27", "1-32", "1-33", "1-40", "1-42", "C-09")
async def test_the_pipeline_of_remote_agents_runs_unchanged(
    tmp_path: Path, started: Starting, ours: Server, before: Before
) -> None:
    researcher, writer, reviewer = before(started(OLD)), before(ours.url), before(started(NEW))
    text = (DOCUMENTS / "a2a-pipeline.yaml").read_text()
    for host, wire in zip(
        ("http://research-agent:9000", "http://writer-agent:9001", "http://review-agent:9002"),
        (researcher, writer, reviewer),
        strict=True,
    ):
        text = text.replace(host, wire.url)
    topic = " ".join(f"{'w' * 30}{number}" for number in range(20))
    run = await ran(text, tmp_path, env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, input=topic)
    assert run.state == "COMPLETED", run.why
    assert list(run.ends()) == ["research", "write", "review"]
    assert researcher.all(STREAM)[0].text == f"Research the topic: {topic}"
    article = reviewer.all(STREAM)[0].text.removeprefix("Review this article for accuracy: ")
    assert article.split()[1:] == f"Write an article based on: You said Research the topic: {topic}".split()
    assert run.output == f"You said Review this article for accuracy: {article}"
    for wire in (researcher, writer, reviewer):
        assert first_requests(wire) == [CARD, STREAM]
        assert (len(wire.all(STREAM)), len(wire.all(SEND))) == (1, 0)
    progress = [post for post in run.posts if "streaming..." in post]
    assert progress == [f"**[write]** A2A streaming... ({count} chunks)" for count in (10, 20, 30)]
    (written,) = [post for post in run.posts if post.startswith("**[write]** Completed (a2a)\n")]
    assert written == f"**[write]** Completed (a2a)\n{article[:500]}\n...(truncated)"


@pytest.mark.proves("1-33", "C-09")
async def test_a_pipeline_is_sequential_without_any_edges(tmp_path: Path, started: Starting, before: Before) -> None:
    wire = before(started(NEW))
    steps = [f"name: s{n}\ntype: a2a\nurl: {wire.url}\ntask: t{n}" for n in (1, 2, 3)]
    run = await ran(flow(*steps, pattern="pipeline"), tmp_path)
    assert run.state == "COMPLETED", run.why
    started_ = [one for about in run.abouts for one in about.get("started", ())]
    assert started_ == ["s1", "s2", "s3"]
    for earlier, later in (("s1", "s2"), ("s2", "s3")):
        ended = next(at for at, one in enumerate(run.abouts) if one.get("step") == earlier and "status" in one)
        begun = next(at for at, one in enumerate(run.abouts) if later in one.get("started", ()))
        assert ended <= begun


# --- how an agent is asked --------------------------------------------------------------------------------------------


@pytest.mark.proves("1-23", "1-19", "1-31")
@pytest.mark.parametrize("peer", [NEW, OLD], ids=["1.0", "0.3"])
@pytest.mark.parametrize("streaming", ["true", "false"])
async def test_steps_stream_by_default(
    tmp_path: Path, started: Starting, before: Before, peer: Peer, streaming: str
) -> None:
    wire = before(started(peer))
    step = f"name: say\ntype: a2a\nurl: {wire.url}\ntask: chunks\nstreaming: {streaming}"
    run = await ran(flow(step), tmp_path)
    assert (run.state, run.output) == ("COMPLETED", "one two three")
    counts = (len(wire.all(STREAM)), len(wire.all(SEND)), len(wire.all(SUBSCRIBE)))
    assert counts == ((1, 0, 0) if streaming == "true" else (0, 1, 0))


@pytest.mark.proves("1-18", "1-19", "1-21", "C-16")
async def test_agent_and_step_fields_reach_the_wire(tmp_path: Path, started: Starting, before: Before) -> None:
    wire, other = before(started(NEW)), before(started(NEW))
    head = f"""
agents:
  - name: far
    runtime: a2a
    url: {wire.url}
    headers: {{X-Agent: "of ${{WHO}}", X-Both: agent}}
    timeoutMs: 45000
    streaming: false
"""
    run = await ran(
        flow(
            "name: plain\ntype: a2a\nagent: far\ntask: one",
            "name: more\ntype: a2a\nagent: far\ntask: two\nheaders: {X-Both: step, X-Step: s}\ndependsOn: [plain]",
            f"name: moved\ntype: a2a\nagent: far\ntask: three\nurl: {other.url}\nstreaming: true\ndependsOn: [more]",
            head=head,
        ),
        tmp_path,
        env=environment(tmp_path, WHO="Ada"),
    )
    assert run.state == "COMPLETED", run.why
    one, two = wire.all(SEND)
    (three,) = other.all(STREAM)
    assert (one.text, two.text, three.text) == ("one", "two", "three")
    names = ("x-agent", "x-both", "x-step")
    assert [one.headers.get(name) for name in names] == ["of Ada", "agent", None]
    assert [two.headers.get(name) for name in names] == ["of Ada", "step", "s"]
    assert [three.headers.get(name) for name in names] == ["of Ada", "agent", None]
    assert not wire.all(STREAM)
    cards = wire.all(CARD)
    assert cards[0].headers["x-agent"] == "of Ada", "a card may be for those only who say who they are"


@pytest.mark.proves("1-38", "C-16")
@pytest.mark.parametrize("where", ["agent", "step"])
async def test_a_step_has_its_time_and_the_remote_task_is_cancelled_then(
    tmp_path: Path, started: Starting, before: Before, where: str
) -> None:
    wire = before(started(NEW))
    ours, theirs = ("timeoutMs: 3000", "") if where == "agent" else ("timeoutMs: 300000", "timeoutMs: 3000")
    head = f"agents:\n  - name: far\n    runtime: a2a\n    url: {wire.url}\n    {ours}\n"
    run = await ran(flow(f"name: say\ntype: a2a\nagent: far\ntask: hold\n{theirs}", head=head), tmp_path)
    assert run.state == "FAILED"
    assert run.why.startswith("Failed at say: A2A agent failed: ")
    await asyncio.to_thread(wire.waits_for, CANCEL)


@pytest.mark.proves("1-16", "1-26")
async def test_a_failed_task_fails_its_step_with_its_text(tmp_path: Path, ours: Server) -> None:
    run = await ran(flow(f"name: say\ntype: a2a\nurl: {ours.url}\ntask: break it"), tmp_path)
    assert run.why == "Failed at say: A2A agent failed: no such city"
    assert "**[say]** Failed: A2A agent failed: no such city" in run.posts


@pytest.mark.proves("C-07")
@pytest.mark.parametrize("streaming", ["true", "false"])
async def test_step_output_is_all_artifact_text(tmp_path: Path, streaming: str) -> None:
    (tmp_path / "far").mkdir()
    with served(tmp_path / "far", f"{HERE / 'elsewhere.py'}:maker") as far:
        step = f"name: say\ntype: a2a\nurl: {far.url}\ntask: x\nstreaming: {streaming}"
        run = await ran(flow(step), tmp_path)
    assert run.output == 'one two\n{"three":3}\nfour', run.why


@pytest.mark.proves("1-22")
@pytest.mark.parametrize("peer", [NEW, OLD], ids=["1.0", "0.3"])
async def test_agents_without_a_card_are_called_and_streamed(
    tmp_path: Path, started: Starting, before: Before, peer: Peer
) -> None:
    wire = before(started(peer))
    wire.has_card = False
    run = await ran(flow(f"name: say\ntype: a2a\nurl: {wire.url}/jsonrpc\ntask: chunks"), tmp_path)
    assert (run.state, run.output) == ("COMPLETED", "one two three"), run.why
    assert wire.all(STREAM)
    (line,) = [post for post in run.posts if "A2A agent: say (no card: " in post]
    assert line.endswith("continuing without")


@pytest.mark.proves("C-08", "1-25")
@pytest.mark.parametrize("who", ["ours", "1.0", "0.3"])
async def test_a_stream_that_breaks_is_taken_up_and_the_agent_not_run_twice(
    tmp_path: Path, started: Starting, ours: Server, before: Before, who: str
) -> None:
    wire = before(ours.url if who == "ours" else started(NEW if who == "1.0" else OLD))
    wire.cut_after = 2
    task = "a b c d e f" if who == "ours" else "chunks"
    run = await ran(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: {task}"), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert wire.is_cut.is_set()
    expected = "a b c d e f" if who == "ours" else "one two three"
    assert run.output.strip().removeprefix(run.output.split()[0] if who == "ours" else "").strip() == expected
    assert len(wire.all(STREAM)) == 1
    assert not wire.all(SEND), "the message was accepted, and is not sent again"
    assert wire.all(SUBSCRIBE) or wire.all(GET)


@pytest.mark.proves("C-08", "1-25")
@pytest.mark.parametrize("who", ["1.0", "0.3"])
async def test_a_stream_without_an_event_is_sent_again_at_once(
    tmp_path: Path, started: Starting, before: Before, who: str
) -> None:
    wire = before(started(NEW if who == "1.0" else OLD))
    wire.cut_after = 0
    run = await ran(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: chunks"), tmp_path)
    assert (run.state, run.output) == ("COMPLETED", "one two three"), run.why
    assert wire.is_cut.is_set()
    assert len(wire.all(STREAM)) == 1
    assert len(wire.all(SEND)) == (0 if who == "1.0" else 1), "a server of 1.0 lists the task that came of it"


@pytest.mark.proves("1-57")
async def test_steps_can_share_a_conversation(tmp_path: Path, ours: Server) -> None:
    def steps(name: str) -> list[str]:
        return [f"name: {name}{n}\ntype: a2a\nagent: {name}\ntask: x\ndependsOn: []" for n in (1, 2)]

    head = f"""
agents:
  - {{name: same, runtime: a2a, url: "{ours.url}", shareContext: true}}
  - {{name: other, runtime: a2a, url: "{ours.url}"}}
"""
    output = "{{steps.same1.output}}{{steps.same2.output}}{{steps.other1.output}}{{steps.other2.output}}"
    text = flow(*steps("same"), *steps("other"), head=head, workflow=f'    output: "{output}"')
    run = await ran(text, tmp_path)
    assert run.state == "COMPLETED", run.why
    one, two, three, four = run.output.replace("x", " ").split()
    assert one == two
    assert len({one, three, four}) == 3


async def test_unreachable_agents_fail_their_step(tmp_path: Path) -> None:
    run = await ran(flow("name: say\ntype: a2a\nurl: http://127.0.0.1:9\ntask: x\ntimeoutMs: 3000"), tmp_path)
    assert run.why.startswith("Failed at say: A2A agent failed: ")


@pytest.mark.proves("1-58")
async def test_all_agents_are_looked_for_before_a_run_that_wants_that(
    tmp_path: Path, started: Starting, before: Before
) -> None:
    wire = before(started(NEW))
    steps = [
        f"name: here\ntype: a2a\nurl: {wire.url}\ntask: x",
        "name: away\ntype: a2a\nurl: http://127.0.0.1:9\ntask: x\ndependsOn: [here]\ntimeoutMs: 3000",
    ]
    run = await ran(flow(*steps), tmp_path, checkAgents=True)
    assert run.state == "FAILED"
    assert run.why.startswith("The preflight has failed\nThe A2A agent away is not there: ")
    assert not wire.all(STREAM)
    run = await ran(flow(steps[0]), tmp_path, checkAgents=True)
    assert run.state == "COMPLETED", run.why


# --- served -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-59")
def test_a_step_in_push_mode_parks_the_run_until_a_webhook_ends_it(tmp_path: Path, before: Before) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "far").mkdir()
    with served(tmp_path / "far", f"{HERE / 'elsewhere.py'}:patient", ACCORD_PUSH__ALLOW_PRIVATE="1") as far:
        wire = before(far.url)
        (tmp_path / "flow.yaml").write_text(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: {gate}\nmode: push"))
        (tmp_path / "here").mkdir()
        with served(tmp_path / "here", str(tmp_path / "flow.yaml")) as near:
            run = near.send("go", at_once=True)["id"]
            sent = wire.waits_for(SEND)
            assert sent.params["configuration"]["taskPushNotificationConfig"]["url"].startswith(near.url)
            until(lambda: claims(tmp_path / "here", run) == [None])
            gate.write_text("now")
            done = until(lambda: ended(near, run))
        assert (done["status"]["state"], text_of(done)) == ("TASK_STATE_COMPLETED", "begun now"), done
        assert not wire.all(STREAM)
        assert not wire.all(SUBSCRIBE)
        assert len(wire.all(SEND)) == 1


def claims(folder: Path, task_id: str) -> list[str | None]:
    """Which nodes have the work of a task: none, if it is parked."""
    (file,) = folder.rglob("*.db")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        return [node for (node,) in store.execute("SELECT node FROM job WHERE key = ? AND kind = 'run'", (task_id,))]


@pytest.mark.proves("1-13")
@pytest.mark.parametrize("peer", [NEW, OLD], ids=["1.0", "0.3"])
def test_canceling_a_run_cancels_remote_tasks(tmp_path: Path, started: Starting, before: Before, peer: Peer) -> None:
    wire = before(started(peer))
    (tmp_path / "flow.yaml").write_text(flow(f"name: say\ntype: a2a\nurl: {wire.url}\ntask: hold"))
    with served(tmp_path, str(tmp_path / "flow.yaml")) as near:
        run = near.send("go", at_once=True)["id"]
        wire.waits_for(STREAM)
        assert near.post("CancelTask", id=run).json()["result"]["status"]["state"] == "TASK_STATE_CANCELED"
        cancelled = wire.waits_for(CANCEL)
    assert cancelled.params["id"]
