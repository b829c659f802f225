"""`accord serve flow.yaml`: a workflow as an agent in real processes."""

import re
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.serve.flowing import PLAIN, ask, reason, result, written
from tests.serve.running import accord, running, said, text_of
from tests.serve.test_reload import said_at_last

TRIAGE = """
version: "1.0"
name: triage
description: Looks at what comes in
swarm: {pattern: dag}
inputs:
  title: {type: string, required: true, description: What it is about}
  count: {type: integer, default: 2}
  level: {type: string, enum: [low, high], default: low}
vars: {tool: printf}
agents:
  - {name: helper, command: cat, interactive: false}
  - {name: far, runtime: a2a, url: "http://127.0.0.1:9/secret-place"}
workflows:
  - name: main
    description: Says what it was given
    steps:
      - {name: say, type: deterministic, command: "printf '%s|' {{inputs.title}} {{inputs.count}} {{input}}"}
  - name: loud
    steps:
      - {name: shout, type: deterministic, command: "printf '%s!' {{inputs.title}}"}
"""


@pytest.mark.proves("1-05")
def test_a_workflow_is_an_agent_with_a_skill_for_each_workflow(tmp_path: Path) -> None:
    written(tmp_path, TRIAGE)
    written(tmp_path, "def echo(text: str) -> str:\n    return text\n", "mine.py")
    with running(tmp_path, "flow.yaml", "mine.py:echo") as server:
        assert "workflow triage: main, loud (2 members)" in server.all_shown
        card = httpx.get(f"{server.url}/.well-known/agent-card.json").json()
        assert (card["name"], card["description"]) == ("triage", "Looks at what comes in")
        assert [skill["id"] for skill in card["skills"]] == ["main", "loud"]
        schema = card["skills"][0]["inputSchema"]
        assert schema["required"] == ["title"]
        assert schema["properties"]["count"] == {"type": "integer", "default": 2}
        assert schema["properties"]["level"]["enum"] == ["low", "high"]
        title, count = {"data": {"title": "a; b"}}, {"data": {"title": "x", "count": 7}}
        assert result(ask(server, title, {"text": "more"})) == "a; b|2|more|"
        assert result(ask(server, count, message_id="2", path="/agents/triage/")) == "x|7||"
        assert result(ask(server, title, message_id="3", metadata={"skill": "loud"})) == "a; b!"
        message = {"messageId": "6", "role": "ROLE_USER", "parts": [title]}
        sent = server.post("SendMessage", message=message, metadata={"skill": "loud"}).json()["result"]["task"]
        assert result(sent) == "a; b!", "the request may say it too"
        assert result(ask(server, {"text": '{"title": "in text"}'}, message_id="4")).startswith("in text|2|")
        assert text_of(server.send("hi", "5", path="/agents/echo/")) == "hi"


def test_refused_run_values_are_reported(tmp_path: Path) -> None:
    written(tmp_path, TRIAGE)
    with running(tmp_path, "flow.yaml") as server:
        assert "the input 'title' is needed" in reason(ask(server, {"text": "hi"}))
        wrong = ask(server, {"data": {"title": "x", "count": "many"}}, message_id="2")
        assert "the input 'count' is 'many' (give a value of the type integer)" in reason(wrong)
        assert "give one of low, high" in reason(ask(server, {"data": {"title": "x", "level": "mid"}}, message_id="3"))
        unknown = "There is no input 'tool': there are title, count, level"
        assert reason(ask(server, {"data": {"title": "x", "tool": "rm"}}, message_id="4")) == unknown
        other = ask(server, {"data": {"title": "x"}}, message_id="5", metadata={"skill": "quiet"})
        assert reason(other) == "There is no workflow 'quiet': there are main, loud"
        inner = {"input": "x", "inputs": {"title": "x"}, "vars": {"tool": "rm"}}
        forged = ask(server, {"data": inner}, message_id="6", metadata={"workflow": True})
        assert reason(forged).startswith("There is no input 'input', 'inputs', 'vars'"), "only runs here say that"


def test_workflow_members_are_not_callable(tmp_path: Path) -> None:
    written(tmp_path, TRIAGE)
    with running(tmp_path, "flow.yaml") as server:
        for path in ("/agents/triage/helper/", "/agents/triage%2Fhelper/", "/agents/helper/", "/agents/triage.helper/"):
            answer = httpx.get(f"{server.url}{path}.well-known/agent-card.json")
            assert answer.status_code == 404, path
            sent = httpx.post(f"{server.url}{path}message:send", json={"message": said("x")})
            # What follows an agent in a path may be a tenant: then it is the workflow itself that lacks something.
            assert sent.status_code == 404 or "the input 'title' is needed" in sent.text, path
        catalog = httpx.get(f"{server.url}/.well-known/ai-catalog.json").text
        assert "triage" in catalog
        pages = catalog + httpx.get(f"{server.url}/metrics").text + httpx.get(f"{server.url}/openapi.json").text
        assert "secret-place" not in pages
        assert "helper" not in catalog


def test_settings_name_workflows_and_fixed_values(tmp_path: Path) -> None:
    folder = tmp_path / "flows"
    text = """
version: "1.0"
name: other
swarm: {pattern: dag}
vars: {word: nothing}
workflows:
  - name: main
    steps:
      - {name: say, type: deterministic, command: "printf '%s ' {{vars.word}}; cat here.txt"}
"""
    written(folder, text)
    for name in ("a", "b"):
        written(folder / name, f"in {name}", "here.txt")
    written(folder, "beside it", "here.txt")
    settings = """
[agents.first]
target = "flows/flow.yaml"
vars = { word = "one" }
directory = "a"
description = "Says one"

[agents.second]
type = "workflow"
target = "flows/flow.yaml"
vars = { word = "two" }
directory = "b"

[agents]
third = "flows/flow.yaml"
"""
    (tmp_path / "accord.toml").write_text(settings)
    with running(tmp_path, "--workers", "2") as server:
        assert re.search(r"workflow third: main +│", server.all_shown), "nobody is counted where there are no members"
        assert text_of(server.send("x", "1", path="/agents/first/")) == "one in a"
        assert text_of(server.send("x", "2", path="/agents/second/")) == "two in b"
        assert text_of(server.send("x", "3", path="/agents/third/")) == "nothing beside it"
        card = httpx.get(f"{server.url}/.well-known/agent-card.json").json()
        assert (card["name"], card["description"]) == ("first", "Says one")


def test_a_file_that_is_wrong_is_refused_with_all_its_places(tmp_path: Path) -> None:
    wrong = PLAIN.replace("WORD", "{{steps.no.output}}") + "      - {name: b, type: approval, comand: x}\n"
    written(tmp_path, wrong)
    done = accord(tmp_path, "serve", "flow.yaml", "--port", str(free_port()))
    assert done.returncode == 2
    assert "flow.yaml:9:35: error UNKNOWN_KEY" in done.stderr, done.stderr
    written(tmp_path, PLAIN.replace("WORD", "{{steps.no.output}}"))
    (tmp_path / "accord.toml").write_text('[agents.x]\ntarget = "flow.yaml"\n')
    for arguments in (["flow.yaml"], []):
        done = accord(tmp_path, "serve", *arguments, "--port", str(free_port()))
        assert done.returncode == 2
        assert "flow.yaml:8:" in done.stderr
        assert "error UNKNOWN_REFERENCE: {{steps.no.output}}: there is no step no" in done.stderr
        assert "Traceback" not in done.stderr
    done = accord(tmp_path, "serve", "absent.yaml")
    assert (done.returncode, "There is no file absent.yaml" in done.stderr) == (2, True)


@pytest.mark.parametrize("more", [[], ["--server", "granian"]], ids=["uvicorn", "granian"])
def test_changed_workflows_are_reloaded(tmp_path: Path, more: list[str]) -> None:
    file = written(tmp_path / "flows", PLAIN.replace("WORD", "one"))
    here = tmp_path / "here"
    here.mkdir()
    with running(here, str(file), "--reload", *more, ACCORD_SERVER__GRACE_SECONDS="0.2") as server:
        said_at_last(server, "one")
        said_at_last(server, "two", lambda: file.write_text(PLAIN.replace("WORD", "two")))
        file.write_text(PLAIN.replace("WORD", "{{steps.no.output}}"))
        server.says("error UNKNOWN_REFERENCE")
        file.write_text(PLAIN.replace("WORD", "three"))
        said_at_last(server, "three")
        assert "Traceback" not in server.all_shown
