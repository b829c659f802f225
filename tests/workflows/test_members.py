"""The agents behind steps: commands, models and agents elsewhere, as a document says, hosted and really asked."""

import json
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from accord.agents.remote import CardOffer, RemoteTerms, ReportMode
from accord.client.credentials import KeyManager
from accord.model import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from accord.testing.inprocess import running
from accord.workflows.agent_access import card_of, fill_secrets, find_missing_agents, introduction_line
from accord.workflows.agent_definition import AgentDef, Constraints, Files, Permissions
from accord.workflows.document import IdleNudge, Step
from accord.workflows.executors import Result
from accord.workflows.members import (
    Member,
    child_message,
    child_result,
    define_members,
    has_exited,
    make_member_agent,
    member_for,
    member_of,
    member_prompt,
    mode_of,
    require_output,
)
from accord.workflows.plan import Plan
from accord.workflows.verification import CompletionEvidence, judge_completion
from tests.agents.chat.server import serving
from tests.serve.running import Server
from tests.serve.running import running as served
from tests.workflows.scenes import environment

HERE = Path(__file__).parent
STEP = Step(name="build", type="agent", agent="dev", task="build it")
KEYS = KeyManager(env={})


def plan_of(*agents: AgentDef, steps: tuple[Step, ...] = (STEP,), **members: Any) -> Plan:
    return Plan(name="flow", workflow="main", directory="/", steps=steps, agents=agents, **members)


def does(what: str) -> str:
    """A command of the stand-ins."""
    script = HERE.parent / "agents" / "process" / "clis" / "does.py"
    return shlex.join((sys.executable, "-I", str(script), *what.split()))


def paints(what: str) -> str:
    """A program that is for people."""
    return shlex.join((sys.executable, "-I", str(HERE / "clis" / "painter.py"), what))


async def asked(
    member: Member, task: str, directory: Path, *, env: dict[str, str] | None = None, keys: Any = KEYS, **said: Any
) -> Task:
    """What becomes of a step's child task."""
    agent = make_member_agent("member", member, env or environment(directory), keys)
    said = {"id": "m-1", "run_id": "run-1", "directory": directory, **said}
    async with running(agent) as a2a:
        answer = await a2a.send(child_message(member, said.pop("step", STEP), task, **said))
    assert isinstance(answer, Task)
    return answer


# --- who there is -----------------------------------------------------------------------------------------------------


FAR = AgentDef(name="far", runtime="a2a", url="http://far.example", headers={"A": "1"}, timeout=5)


def test_steps_of_an_agent_share_a_member_by_default() -> None:
    dev = AgentDef(name="dev", command="true")
    steps = (
        STEP,
        Step(name="careful", type="agent", agent="dev", task="x", on_crash="restart"),
        Step(name="ask", type="a2a", agent="far", task="x"),
        Step(name="merged", type="a2a", agent="far", task="x", url=FAR.url, headers={"A": "1"}, timeout=5),
        Step(name="other", type="a2a", agent="far", task="x", headers={"B": "2"}),
        Step(name="inline", type="a2a", task="x", url="http://inline.example"),
        Step(name="each", type="map", over="{{vars.x}}", step=Step(name="one", type="a2a", agent="far", mode="poll")),
        Step(name="shell", type="deterministic", command="true"),
    )
    plan = plan_of(dev, FAR, steps=steps)
    found = define_members(plan)
    assert sorted(found) == [
        "flow/.main.inline",
        "flow/dev",
        "flow/dev.main.careful",
        "flow/far",
        "flow/far.main.each",
        "flow/far.main.other",
    ]
    names = {step.name: member_of(plan, step) for step in steps if step.type in ("agent", "a2a")}
    assert names == {
        "build": "flow/dev",
        "careful": "flow/dev.main.careful",
        "ask": "flow/far",
        "merged": "flow/far",
        "other": "flow/far.main.other",
        "inline": "flow/.main.inline",
    }
    item = Step(name="each[3]", type="a2a", agent="far", mode="poll")
    assert member_of(plan, item) == "flow/far.main.each"
    assert member_for(plan, steps[-1]) is None
    assert [make_member_agent(name, one, {"PATH": ""}).profile.name for name, one in found.items()] == list(found)


@pytest.mark.proves("C-16", "1-21")
def test_an_agent_gives_defaults_and_a_step_overrides_them_one_by_one() -> None:
    step = Step(name="s", type="a2a", agent="far", url="http://near.example", headers={"B": "2"}, streaming=False)
    member = member_for(plan_of(FAR), step)
    assert member is not None
    agent = member.agent
    assert (agent.url, agent.headers, agent.timeout, agent.streaming) == (
        "http://near.example",
        {"A": "1", "B": "2"},
        5,
        False,
    )


@pytest.mark.proves("1-07", "1-18")
def test_remote_agents_have_a_minute() -> None:
    member = member_for(plan_of(), Step(name="s", type="a2a", url="http://x.example"))
    assert member is not None
    assert member.agent.timeout == 60


@pytest.mark.proves("1-23", "1-59")
@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ({}, ReportMode.FOLLOW),
        ({"streaming": True}, ReportMode.SUBSCRIBE),
        ({"streaming": False}, ReportMode.POLL),
        ({"mode": "push"}, ReportMode.PUSH),
        ({"mode": "poll", "streaming": True}, ReportMode.POLL),
        ({"mode": "stream"}, ReportMode.SUBSCRIBE),
        ({"mode": "auto"}, ReportMode.AUTO),
    ],
)
def test_answers_are_streamed_by_default(said: dict[str, Any], mode: ReportMode) -> None:
    assert mode_of(AgentDef(name="a", runtime="a2a", url="http://x.example", **said)) is mode


@pytest.mark.parametrize(("streams", "mode"), [(True, ReportMode.SUBSCRIBE), (False, ReportMode.POLL)])
def test_agents_are_streamed_if_supported_and_never_by_webhook(streams: bool, mode: ReportMode) -> None:
    offer = CardOffer(pushes=True, streams=streams, numbers_events=False, output_modes=())
    terms = RemoteTerms(mode=ReportMode.FOLLOW, webhook="https://us.example/hook")
    assert offer.mode(terms, may_push=True) is mode


# --- commands ---------------------------------------------------------------------------------------------------------


RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "$HOME/argv"
env > "$HOME/env"
cat > "$HOME/prompt"
echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s"}'
"""


def recorded(folder: Path, name: str) -> dict[str, str]:
    """An environment in which a command is one that writes down how it is called."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(RECORDER)
    (folder / "bin" / name).chmod(0o755)
    return environment(folder, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.proves("1-34")
@pytest.mark.parametrize(
    ("cli", "binary", "expected"),
    [
        ("claude", "claude", ["-p", "--model", "m-1", "--disallowedTools", "--add-dir", "/more"]),
        ("codex", "codex", ["exec", "--model", "m-1", "--sandbox", "read-only", "--add-dir", "/more"]),
        ("gemini", "gemini", ["--model", "m-1", "--include-directories", "/more"]),
        ("aider", "aider", ["--model", "m-1", "--dry-run"]),
        ("goose", "goose", ["run"]),
        ("opencode", "opencode", ["run", "--model", "m-1"]),
        ("droid", "droid", ["exec", "--model", "m-1"]),
        ("cursor", "cursor-agent", ["-p", "--model", "m-1"]),
        ("cursor-agent", "cursor-agent", ["-p", "--model", "m-1"]),
        ("agent", "agent", ["-p", "--model", "m-1"]),
    ],
)
async def test_commands_are_called_as_documented(tmp_path: Path, cli: Any, binary: str, expected: list[str]) -> None:
    agent = AgentDef(
        name="dev",
        cli=cli,
        interactive=False,
        constraints=Constraints(model="m-1"),
        permissions=Permissions(access="readonly"),
        additional_paths=("/more",),
    )
    member = define_members(plan_of(agent))["flow/dev"]
    await asked(member, "build it", tmp_path, env=recorded(tmp_path, binary))
    called = (tmp_path / "argv").read_text().splitlines()
    at = [called.index(word) for word in expected]
    assert at == sorted(at)
    if cli == "goose":
        assert "GOOSE_MODEL=m-1" in (tmp_path / "env").read_text()


async def test_prompts_contain_role_permissions_and_task(tmp_path: Path) -> None:
    agent = AgentDef(
        name="dev",
        command=does("echo"),
        role="a careful builder",
        preset="worker",
        skills="You know make.",
        additional_paths=("/more",),
        permissions=Permissions(files=Files(deny=("*.key",))),
    )
    member = define_members(plan_of(agent))["flow/dev"]
    result = child_result(member, await asked(member, "build it\nSTEP_COMPLETE:build", tmp_path))
    assert result.ok
    order = ["you said", "a careful builder", "start no other agents", "You know make.", "*.key", "/more", "build it"]
    places = [result.output.index(text) for text in order]
    assert places == sorted(places)
    assert result.output.endswith("STEP_COMPLETE:build"), "without a terminal there is nothing to be careful about"
    assert result.exit_code == 0


@pytest.mark.parametrize("preset", ["reviewer", "analyst"])
def test_read_only_agents_are_told_to_change_nothing(preset: Any) -> None:
    member = Member(agent=AgentDef(name="dev", command="true", preset=preset))
    assert not member.is_interactive
    assert "change no files" in member_prompt(member, STEP, "look")


async def test_an_agent_works_where_its_step_does_with_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "secret")
    place = tmp_path / "place"
    place.mkdir()
    env = environment(tmp_path, ANTHROPIC_API_KEY="key-of-the-run", ACCORD_STORE="ours", TOKEN="t")
    agent = AgentDef(
        name="dev",
        command=does("environment"),
        interactive=False,
        env={"OWN": "own ${TOKEN}", "BOTH": "agent", "ANTHROPIC_API_KEY": "${ANTHROPIC_API_KEY}"},
        constraints=Constraints(model="m-1"),
    )
    member = define_members(plan_of(agent))["flow/dev"]
    agent_ = make_member_agent("member", member, env, KEYS)
    async with running(agent_) as a2a:
        message = child_message(
            member, STEP, "x", id="m", run_id="r", directory=place, env={"BOTH": "step", "STEP": "s"}
        )
        answer = await a2a.send(message)
    assert isinstance(answer, Task)
    found = json.loads(child_result(member, answer).output)
    assert found["PWD"] == str(place) if "PWD" in found else True
    assert found["TASK_OUTBOX"].startswith(str(place))
    expected = {
        "OWN": "own t",
        "BOTH": "step",
        "STEP": "s",
        "ANTHROPIC_API_KEY": "key-of-the-run",
        "AGENT_MODEL": "m-1",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert not {"OF_THE_SERVER", "ACCORD_STORE", "TOKEN"} & found.keys()


@pytest.mark.parametrize(("cli", "binary"), [("claude", "claude"), ("codex", "codex"), ("gemini", "gemini")])
async def test_a_coding_agent_gets_its_own_key_and_no_other_secret(tmp_path: Path, cli: Any, binary: str) -> None:
    keys = {"ANTHROPIC_API_KEY": "k-claude", "OPENAI_API_KEY": "k-codex", "GEMINI_API_KEY": "k-gemini", "TOKEN": "t"}
    member = Member(agent=AgentDef(name="dev", cli=cli, interactive=False))
    await asked(member, "build it", tmp_path, env=recorded(tmp_path, binary) | keys)
    found = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert {name: found[name] for name in keys if name in found} == {
        name: value for name, value in keys.items() if value == f"k-{cli}"
    }


async def test_failed_agents_report_reason_and_paths(tmp_path: Path) -> None:
    env = environment(tmp_path, WHERE=str(HERE / "clis" / "painter.py"), API_TOKEN="very-secret-value")
    command = f"sh -c {shlex.quote('echo $WHERE and $API_TOKEN >&2; exit 3')}"
    named = {"WHERE": "${WHERE}", "API_TOKEN": "${API_TOKEN}"}
    member = Member(agent=AgentDef(name="dev", command=command, interactive=False, env=named))
    result = child_result(member, await asked(member, "x", tmp_path, env=env))
    assert (result.ok, result.exit_code) == (False, None)
    assert result.error == f"member ended with exit code 3: {HERE / 'clis' / 'painter.py'} and ***"


async def test_commands_continue_shared_conversations(tmp_path: Path) -> None:
    script = HERE.parent / "agents" / "process" / "clis" / "claude.py"
    env = recorded(tmp_path, "claude")
    (tmp_path / "bin" / "claude").write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} "$@"\n')
    agent = AgentDef(name="dev", cli="claude", preset=None, interactive=False, share_context=True)
    member = Member(agent=agent)
    agent_ = make_member_agent("member", member, env, KEYS)
    async with running(agent_) as a2a:
        texts = []
        for number, step in enumerate((STEP, STEP, Step(name="alone", agent="dev", share_context=False))):
            said: dict[str, Any] = {"id": f"m-{number}", "run_id": "r", "directory": tmp_path}
            answer = await a2a.send(child_message(member, step, f"word {number}", **said))
            assert isinstance(answer, Task)
            texts.append(child_result(member, answer).output.strip())
    assert texts == ["word 0", "word 0 | word 1", "word 2"]


@pytest.mark.parametrize("place", ["artifact", "status", "history", "nowhere", "question"])
def test_an_answer_that_is_a_file_is_not_empty(place: str) -> None:
    parts = (Part(raw=b"x", filename="x.bin"),)
    role = Role.USER if place == "question" else Role.AGENT
    message = Message(message_id="m", role=role, parts=parts)
    task = Task(
        id="t",
        context_id="c",
        status=TaskStatus(state=TaskState.COMPLETED, message=message if place == "status" else None),
        artifacts=(Artifact(artifact_id="a", parts=parts),) if place == "artifact" else (),
        history=(message,) if place in ("history", "question") else (),
    )
    member = Member(agent=AgentDef(name="dev", runtime="a2a"))
    is_answer = place in ("artifact", "status", "history")
    assert require_output(STEP, child_result(member, task), task).ok is is_answer


# --- in a terminal ----------------------------------------------------------------------------------------------------


def interactive(what: str, **members: Any) -> Member:
    constraints = members.pop("constraints", Constraints())
    return Member(
        agent=AgentDef(name="dev", command=paints(what), interactive=True, constraints=constraints),
        grace=0.5,
        **members,
    )


def came(member: Member, task: Task) -> Result:
    return judge_completion("build", child_result(member, task), CompletionEvidence(has_exited=has_exited(task)))


async def test_terminal_agents_end_at_their_own_marker_only(tmp_path: Path) -> None:
    member = interactive("done")
    result = came(member, await asked(member, "Build it, then print STEP_COMPLETE:build", tmp_path))
    assert (result.ok, result.reason) == (True, "completed_by_evidence"), result
    assert f"working in {tmp_path}" in result.output
    assert "it is built" in result.output


async def test_an_agent_in_a_terminal_may_decide(tmp_path: Path) -> None:
    member = interactive("decides")
    result = came(member, await asked(member, "Build it", tmp_path))
    assert (result.ok, result.reason) == (False, "retry_requested_by_owner")


async def test_an_agent_in_a_terminal_that_ends_is_done(tmp_path: Path) -> None:
    member = interactive("exits")
    result = came(member, await asked(member, "Build it", tmp_path))
    assert (result.ok, result.reason) == (True, "completed_by_process_exit")


async def test_an_agent_that_falls_silent_without_evidence_has_failed(tmp_path: Path) -> None:
    member = interactive("quiet", constraints=Constraints(idle_threshold=2))
    task = await asked(member, "Build it", tmp_path)
    assert task.status.state is TaskState.COMPLETED
    assert not has_exited(task)
    assert "which counts as its end" not in child_result(member, task).output
    assert came(member, task).reason == "failed_no_evidence"


async def test_silent_agents_are_nudged_and_get_more_time(tmp_path: Path) -> None:
    member = interactive("nudged", idle_nudge=IdleNudge(nudge_after=2, escalate_after=60, max_nudges=1))
    result = came(member, await asked(member, "Build it", tmp_path))
    assert (result.ok, result.reason) == (True, "completed_by_evidence")
    assert "reminded: Please go on." in result.output


# --- models -----------------------------------------------------------------------------------------------------------


async def test_model_agents_use_their_api(tmp_path: Path) -> None:
    async with serving() as models:
        agent = AgentDef(
            name="thinker",
            cli="api",
            url="${MODELS}",
            credentials="models",
            role="a thinker",
            skills="You are brief.",
            constraints=Constraints(model="m"),
        )
        keys = KeyManager(env={"ACCORD_KEY_MODELS": "sk-models"})
        env = environment(tmp_path, MODELS=models.url)
        task = await asked(Member(agent=agent), "hello", tmp_path, env=env, keys=keys)
    assert child_result(Member(agent=agent), task).ok, task
    request = models.asked[0]
    assert request.headers["authorization"] == "Bearer sk-models"
    assert request.body["messages"][0] == {"role": "system", "content": "You are: a thinker\n\nYou are brief."}
    assert request.body["messages"][-1]["content"] == "hello"


def test_a_model_must_have_a_name() -> None:
    with pytest.raises(ValueError, match="say which, as constraints"):
        make_member_agent("x", Member(agent=AgentDef(name="thinker", cli="api")), {}, KEYS)


# --- agents elsewhere -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("parrot"), f"{HERE / 'elsewhere.py'}:parrot") as server:
        yield server


def remote(url: str, **said: Any) -> Member:
    member = member_for(plan_of(), Step(name="far", type="a2a", url=url, **said))
    assert member is not None
    return member


@pytest.mark.proves("1-01", "1-10", "1-28", "1-31")
@pytest.mark.parametrize("said", [{}, {"streaming": False}, {"streaming": True}, {"mode": "push"}])
async def test_remote_agents_answer(tmp_path: Path, parrot: Server, said: dict[str, Any]) -> None:
    member = remote(parrot.url, **said)
    result = child_result(member, await asked(member, "hello there", tmp_path))
    assert result.ok, result
    assert result.output.split()[1:] == ["hello", "there"]
    assert result.exit_code == 0


@pytest.mark.proves("1-16", "1-26")
async def test_failed_remote_agents_report_the_reason(tmp_path: Path, parrot: Server) -> None:
    member = remote(parrot.url)
    result = child_result(member, await asked(member, "break", tmp_path))
    assert (result.ok, result.error) == (False, "A2A agent failed: no such city")


@pytest.mark.proves("1-57")
async def test_steps_of_one_agent_may_share_a_conversation(tmp_path: Path, parrot: Server) -> None:
    steps = [
        Step(name=name, type="a2a", url=parrot.url, share_context=shares)
        for name, shares in (("a", True), ("b", True), ("c", None))
    ]
    member = remote(parrot.url)
    contexts = []
    async with running(make_member_agent("far", member, environment(tmp_path), KEYS)) as a2a:
        for step in steps:
            said = child_message(member, step, "x", id=step.name, run_id="r", directory=tmp_path)
            assert said.metadata is None, "nobody elsewhere needs to know our directories"
            answer = await a2a.send(said)
            assert isinstance(answer, Task)
            contexts.append(child_result(member, answer).output.split()[0])
    assert contexts[0] == contexts[1] != contexts[2]


class Plain:
    """A server that answers JSON-RPC at one address and has no card."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.methods: list[str] = []
        self.headers: dict[str, str] = {}
        self.url = ""
        self.card: dict[str, Any] | None = None

    def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        self.methods.append(call["method"])
        told = call["params"].get("message", {}).get("parts", [{}])[0].get("text")
        if call["method"] == "message/send" and self.version == "0.3":
            parts = [{"kind": "text", "text": f"old {told}"}]
            task = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}
            return {"result": {**task, "artifacts": [{"artifactId": "a", "parts": parts}]}}
        if call["method"] == "SendMessage" and self.version == "1.0":
            task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}
            return {
                "result": {"task": {**task, "artifacts": [{"artifactId": "a", "parts": [{"text": f"new {told}"}]}]}}
            }
        return {"error": {"code": -32601, "message": "Method not found"}}


@contextmanager
def cardless(version: str = "0.3", status: int = 404) -> Iterator[Plain]:
    there = Plain(version)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if there.card is None:
                self._reply(status, b"nothing here")
            else:
                self._reply(200, json.dumps(there.card).encode())

        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            there.headers = {name.lower(): value for name, value in self.headers.items()}
            answer = {"jsonrpc": "2.0", "id": call["id"], **there.answer(call)}
            self._reply(200, json.dumps(answer).encode())

        def _reply(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    there.url = f"http://127.0.0.1:{server.server_port}/rpc"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield there
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.proves("1-22", "1-42")
@pytest.mark.parametrize(("version", "expected"), [("0.3", "old hi"), ("1.0", "new hi")])
@pytest.mark.parametrize("status", [404, 401])
async def test_an_agent_without_a_card_is_talked_to_all_the_same(
    tmp_path: Path, version: str, expected: str, status: int
) -> None:
    with cardless(version, status) as there:
        member = remote(there.url)
        result = child_result(member, await asked(member, "hi", tmp_path))
    assert result == Result(ok=True, output=expected, exit_code=0), there.methods
    assert there.methods.count("SendMessage" if version == "1.0" else "message/send") == 1


@pytest.mark.proves("C-16")
async def test_header_secrets_come_from_environment_and_credentials(tmp_path: Path) -> None:
    keys = KeyManager(env={"ACCORD_KEY_FAR": "from-the-keys"})
    env = environment(tmp_path, TOKEN="from-the-environment")
    with cardless() as there:
        headers = {"X-One": "Token ${TOKEN}", "X-Two": "${credential:far}", "X-Plain": "$TOKEN"}
        member = remote(there.url, headers=headers)
        assert child_result(member, await asked(member, "hi", tmp_path, env=env, keys=keys)).ok
    found = [there.headers[name] for name in ("x-one", "x-two", "x-plain")]
    assert found == ["Token from-the-environment", "from-the-keys", "$TOKEN"]


@pytest.mark.parametrize("said", [{"headers": {"Authorization": "Bearer ${TOKEN}"}}, {"credentials": "far"}])
async def test_card_requirements_are_met_by_headers_or_credentials(tmp_path: Path, said: dict[str, Any]) -> None:
    keys = KeyManager(env={"ACCORD_TOKEN_FAR": "t-1"})
    with cardless("1.0") as there:
        there.card = {
            "name": "Far",
            "description": "Asks who it is",
            "version": "1",
            "supportedInterfaces": [{"url": there.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "capabilities": {},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
            "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"b": {"list": []}}}],
        }
        member = remote(there.url, **said)
        result = child_result(
            member, await asked(member, "hi", tmp_path, env=environment(tmp_path, TOKEN="t-1"), keys=keys)
        )
    assert result.output == "new hi", result
    assert there.headers["authorization"] == "Bearer t-1"


async def test_a_credential_that_is_nowhere_is_not_left_out(tmp_path: Path) -> None:
    with cardless() as there:
        member = remote(there.url, credentials="mistyped")
        result = child_result(member, await asked(member, "hi", tmp_path))
    assert "There is no credential called mistyped" in (result.error or "")
    assert there.methods == []


@pytest.mark.parametrize("said", [{"headers": {"X-One": "${credential:far}"}}, {"credentials": "far"}])
async def test_credential_of_other_hosts_is_not_sent_to_an_agent(tmp_path: Path, said: dict[str, Any]) -> None:
    keys = KeyManager(env={"ACCORD_KEY_FAR": "k", "ACCORD_HOSTS_FAR": "far.example"})
    with cardless() as there:
        member = remote(there.url, **said)
        result = child_result(member, await asked(member, "hi", tmp_path, keys=keys))
    assert "`far` is not for 127.0.0.1" in (result.error or "")
    assert there.methods == []


async def test_unreachable_agents_fail_in_time(tmp_path: Path) -> None:
    member = remote("http://127.0.0.1:9", timeout=3)
    result = child_result(member, await asked(member, "hi", tmp_path))
    assert (result.error or "").startswith("A2A agent failed: The remote agent could not be reached: ")


async def test_a_secret_that_is_nowhere_fails_before_anything_is_sent(tmp_path: Path) -> None:
    with cardless() as there:
        member = remote(there.url, headers={"Authorization": "Bearer ${NOT_SET}"})
        result = child_result(member, await asked(member, "hi", tmp_path))
    assert not result.ok
    assert "There is no variable called NOT_SET" in (result.error or "")
    assert there.methods == []


def test_a_text_without_references_is_as_it_is() -> None:
    assert fill_secrets("$X ${} {Y}", {}, KEYS) == "$X ${} {Y}"


@pytest.mark.proves("C-07")
def test_everything_that_an_agent_made_is_the_output() -> None:
    made_of = (Part(text="one "), Part(text="two"), Part(data={"three": 3}), Part(raw=b"x", filename="four"))
    artifacts = (Artifact(artifact_id="a", parts=made_of), Artifact(artifact_id="b", parts=(Part(text="five"),)))
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.COMPLETED), artifacts=artifacts)
    assert child_result(Member(agent=FAR), task) == Result(ok=True, output='one two\n{"three":3}\nfive', exit_code=0)


@pytest.mark.parametrize("state", [TaskState.CANCELED, TaskState.REJECTED, TaskState.UNKNOWN])
def test_an_end_without_a_word_is_named(state: TaskState) -> None:
    task = Task(id="t", context_id="c", status=TaskStatus(state=state))
    assert child_result(Member(agent=FAR), task).error == f"A2A agent failed: the task is {state.name.lower()}"


@pytest.mark.proves("1-02", "1-58")
async def test_remote_agents_are_checked_before_a_run(tmp_path: Path, parrot: Server) -> None:
    there = AgentDef(name="there", runtime="a2a", url=parrot.url)
    away = AgentDef(name="away", runtime="a2a", url="http://127.0.0.1:9")
    unset = AgentDef(name="unset", runtime="a2a", url=parrot.url, headers={"X": "${NOT_SET}"})
    local = AgentDef(name="local", command="true")
    found = await find_missing_agents([there, away, unset, local], environment(tmp_path), KEYS)
    assert [problem.partition(":")[0] for problem in found] == [
        "The A2A agent away is not there",
        "The A2A agent unset is not there",
    ]
    card = await card_of(there, environment(tmp_path), KEYS)
    assert (
        introduction_line(there, card)
        == "A2A agent: parrot (Says in which conversation it is and what it was told, in pieces)"
    )
    line = introduction_line(away, await card_of(away, environment(tmp_path), KEYS))
    assert line.startswith("A2A agent: away (no card: ")
