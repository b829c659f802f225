"""What settings may say of a command, and what becomes of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.agents.process import AGENT_TYPE, ProcessOptions
from accord.agents.process.options import (
    PRESETS,
    CommandCall,
    PresetName,
    PromptInput,
    build_argv,
    is_session,
    preset_of,
)
from accord.agents.safe_regexes import compile_regex
from accord.api import agent_types
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Crash
from tests.agents.process.conftest import Making
from tests.cases import each
from tests.serve.running import accord

SESSION = "0198-abc"


@pytest.mark.parametrize(
    ("name", "first", "again"),
    [
        (
            "claude",
            "claude -p --output-format stream-json --verbose --include-partial-messages --extra",
            "claude -p --output-format stream-json --verbose --include-partial-messages --extra --resume 0198-abc",
        ),
        ("codex", "codex exec --json --extra -", "codex exec --json --extra resume 0198-abc -"),
        (
            "gemini",
            "gemini --output-format stream-json --extra",
            "gemini --output-format stream-json --extra --resume 0198-abc",
        ),
        (
            "goose",
            "goose run --output-format stream-json --extra --name 0198-abc --instructions -",
            "goose run --output-format stream-json --extra --resume --name 0198-abc --instructions -",
        ),
        ("opencode", "opencode run --format json --extra", "opencode run --format json --extra --session 0198-abc"),
        (
            "droid",
            "droid exec --output-format stream-json --extra",
            "droid exec --output-format stream-json --extra --session-id 0198-abc",
        ),
        (
            "cursor",
            "cursor-agent -p --output-format stream-json --extra",
            "cursor-agent -p --output-format stream-json --extra --resume=0198-abc",
        ),
    ],
)
def test_how_a_preset_is_called(name: str, first: str, again: str) -> None:
    preset = PRESETS[name]
    begun = SESSION if preset.headless.begins else None
    assert (
        build_argv(preset.binary, preset.headless, ["--extra"], CommandCall(prompt="-x", session=begun))
        == first.split()
    )
    call = CommandCall(prompt="-x", session=SESSION, resumes=True)
    assert build_argv(preset.binary, preset.headless, ["--extra"], call) == again.split()
    assert preset.headless.prompt_input is PromptInput.STDIN, "what callers say is no argument"


def test_aider_has_no_session_and_takes_the_prompt_as_a_value() -> None:
    found = build_argv(
        "aider", PRESETS["aider"].headless, [], CommandCall(prompt="--exec rm", session=SESSION, resumes=True)
    )
    assert found[-1] == "--message=--exec rm"
    assert SESSION not in " ".join(found)


def test_grants_are_given_as_they_are() -> None:
    call = CommandCall(prompt="", session=SESSION, resumes=True, grants=("Bash(rm {session})", "Write"))
    assert build_argv("claude", PRESETS["claude"].headless, [], call)[-3:] == [
        "--allowedTools",
        "Bash(rm {session})",
        "Write",
    ]


@each("name", PRESETS)
def test_a_prompt_is_never_a_flag_in_a_terminal(name: str) -> None:
    mode = PRESETS[name].terminal
    found = build_argv("x", mode, [], CommandCall(prompt="--help"))
    assert "--help" not in found[: found.index("--") if "--" in found else None]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_whole(name: str, making: Making) -> None:
    preset = PRESETS[name]
    for pattern in (*preset.questions, *([preset.lost] if preset.lost else [])):
        compile_regex(pattern)
    agent = making(preset=name, name=None)
    assert agent.profile.name == name
    assert agent.profile.crash is (Crash.RESUME if preset.headless.resume else Crash.FAIL)


def test_presets_match_the_settings() -> None:
    assert set(PRESETS) == set(PresetName.__args__)  # type: ignore[attr-defined]


def test_a_session_must_not_be_a_flag() -> None:
    assert is_session("0198-abc_d.e:f")
    assert not any(map(is_session, ("", "-x", "--resume", "a b", "a\n", "x" * 201)))


def test_it_is_a_kind() -> None:
    assert agent_types.AGENT_TYPES.load("process") is AGENT_TYPE


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"preset": "claude"}, r"no command claude .*\(npm install -g .*path = .*installed_later = true$"),
        ({"preset": "codex", "path": "/nowhere/codex"}, "no command /nowhere/codex"),
        ({"command": "no-such-command -p"}, r"no command no-such-command .*: install it, .*command = "),
        ({"command": "./beside", "directory": "HERE"}, "no command ./beside"),
    ],
)
def test_a_command_that_is_missing_is_noticed_before_the_first_task(
    said: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    told = {name: value.replace("HERE", str(tmp_path)) for name, value in said.items()}

    def given(**more: Any) -> AgentArguments:
        options = msgspec.convert({**told, **more}, ProcessOptions)
        return AgentArguments(options=options, env={"PATH": str(tmp_path), "HOME": str(tmp_path)})

    with pytest.raises(ValueError, match=reason):
        AGENT_TYPE.make(given())
    AGENT_TYPE.make(given(installed_later=True))
    file = tmp_path / Path((told.get("command") or told["preset"]).partition(" ")[0]).name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    AGENT_TYPE.make(given(**({"path": str(file)} if "path" in told else {})))


def test_one_beside_a_directory_that_is_yet_to_be_made_may_be_there() -> None:
    AGENT_TYPE.make(AgentArguments(options=ProcessOptions(command="./later"), env={"PATH": "", "HOME": "/"}))


def test_a_missing_command_is_reported_at_start(tmp_path: Path) -> None:
    for table in ('type = "process"\npreset = "droid"', 'type = "relay"\ncommand = "no-such-command -p"'):
        (tmp_path / "accord.toml").write_text(f"[agents.x]\n{table}\n")
        refused = accord(tmp_path, "serve", "--store", "sqlite://:memory:", PATH=str(tmp_path))
        assert refused.returncode == 2, refused.stderr
        (line,) = [line for line in refused.stderr.splitlines() if "there is no" in line]
        assert "agents.x: " in line
        assert "installed_later = true" in line


def test_a_command_may_be_a_line() -> None:
    options = ProcessOptions(command="run 'two words' {prompt}")
    preset = preset_of(options)
    assert build_argv(preset.binary, preset.headless, (), CommandCall(prompt="hi")) == ["run", "two words", "hi"]
    assert preset.headless.prompt_input is PromptInput.ARGUMENT


def test_environment_values_are_hidden() -> None:
    assert "secret" not in repr(ProcessOptions(command="x", env={"KEY": "secret"}))


@each(
    ("said", "reason"),
    [
        ({}, "set either a preset"),
        ({"preset": "claude", "command": "x"}, "either a preset"),
        ({"preset": "other"}, "preset"),
        ({"command": ""}, "the command is empty"),
        ({"command": "sh -c {prompt}"}, "`sh` may run {prompt}"),
        ({"command": "timeout 9 x", "prompt": "argument"}, "`timeout` may run {prompt}"),
        ({"command": "{prompt} x"}, "choose which program"),
        ({"preset": "claude", "events": "codex"}, "a preset has its own"),
        ({"command": "x", "prompt": "typed"}, "typed into a terminal"),
        ({"command": "x", "mode": "pty", "prompt": "stdin"}, "in a terminal"),
        ({"command": "x", "mode": "pty", "events": "lines"}, "without a terminal"),
        ({"command": "x", "worktree": True}, "need each other"),
        ({"command": "x", "repository": "r"}, "set both"),
        ({"command": "x", "worktree": True, "repository": "r", "directory": "d"}, "not in both"),
        ({"command": "x", "pass_env": ["ACCORD_STORE"]}, "the server's own"),
        ({"command": "x", "pass_env": ["PGPASSWORD"]}, "the server's own"),
        ({"command": "x", "questions": ["("]}, "not a valid regular expression"),
        ({"command": "x", "done": "["}, "not a valid regular expression"),
        ({"command": "x", "grace": 61}, "grace"),
        ({"command": "x", "unknown": 1}, "unknown"),
    ],
)
def test_impossible_options_are_refused_on_load(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(said, ProcessOptions)
