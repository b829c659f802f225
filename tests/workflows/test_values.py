"""Values in texts and in commands: whatever a value is, a shell takes it for a value or the command is refused."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accord.agents.command_safety import PROGRAMS
from accord.workflows.commands import run_shell
from accord.workflows.expressions import ROOTS, references
from accord.workflows.functions import FILTERS, FUNCTIONS
from accord.workflows.values import BadExpression, StepValue, Unresolved, UnsafeCommand, Values, check_command
from tests.cases import each

SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]
CANARY = "pwned"
HOLE = "{{steps.a.output}}"


def values_of(said: str, **more: Any) -> Values:
    return Values(steps={"a": StepValue("completed", said)}, **more)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-39", "1-40")
@each(
    ("template", "expected"),
    [
        ("Topic: {{input}}!", "Topic: all of it!"),
        ("{{steps.fetch-data.output}}", "one\n\ntwo\nthree\n"),
        ("{{ steps.fetch-data.output | first-line }}", "one"),
        ("{{steps.fetch-data.output | last-line}}", "three"),
        ("{{steps.fetch-data.output | lines}}", '["one","two","three"]'),
        ("{{steps.fetch-data.output | lines | join(', ')}}", "one, two, three"),
        ("{{steps.fetch-data.output | truncate(3)}}", "one...(truncated)"),
        ("{{steps.fetch-data.output | truncate(300)}}", "one\n\ntwo\nthree\n"),
        ("{{steps.fetch-data.output | trim | length}}", "14"),
        ("{{steps.fetch-data.output | trim | json}}", '"one\\n\\ntwo\\nthree"'),
        ("{{steps.table.json.rows[1].id}}", "b"),
        ("{{steps.table.json.rows.0}}", '{"id":"a"}'),
        ("{{steps.table.output | parse-json | json}}", '{"rows":[{"id":"a"},{"id":"b"}]}'),
        ("{{steps.table.status}} {{steps.table.exit_code}}", "completed 0"),
        ("{{vars.branch}} {{branch}} {{branch | slug}}", "feat/A b feat/A b feat-a-b"),
        ("{{nested.deep}}", "7"),
        ("{{inputs.n}} {{state.s}} {{env.HOME_DIR}}", "1.5 kept /h"),
        ("{{vars.missing | default('none')}}", "none"),
        ("{{ steps.table.json.rows | length > 1 }}", "true"),
        ('{{"{{"}}.Name}} {"a": {"b": 1}}', '{{.Name}} {"a": {"b": 1}}'),
        ("nothing to see", "nothing to see"),
        ("", ""),
    ],
)
def test_texts(template: str, expected: str) -> None:
    values = Values(
        input="all of it",
        inputs={"n": 1.5},
        vars={"branch": "feat/A b", "nested": {"deep": 7}},
        state={"s": "kept"},
        env={"HOME_DIR": "/h"},
        steps={
            "fetch-data": StepValue("completed", "one\n\ntwo\nthree\n"),
            "table": StepValue("completed", '{"rows": [{"id": "a"}, {"id": "b"}]}', 0),
        },
    )
    assert values.text(template) == expected


def test_a_lone_template_keeps_its_type() -> None:
    values = values_of('{"rows": [1, {"a": null}]}')
    assert values.value("{{steps.a.json.rows}}") == [1, {"a": None}]
    assert values.value(" {{steps.a.json.rows[0]}}\n") == 1
    assert values.value("n={{steps.a.json.rows[0]}}") == "n=1"


def test_items_of_maps_go_by_their_own_name_too() -> None:
    values = Values(vars={"file": "other"}, item={"path": "x.py"}, index=3, name="file")
    assert values.text("{{file.path}} {{item.path}} {{index}} {{vars.file}}") == "x.py x.py 3 other"
    with pytest.raises(Unresolved):
        Values().text("{{item}}")


@given(st.text())
def test_values_are_never_templates(said: str) -> None:
    assert values_of(said).text(f"<{HOLE}>") == f"<{said}>"
    assert values_of("{{input}}" + said).text(HOLE) == "{{input}}" + said


@pytest.mark.parametrize("text", ["{{steps.x.output", "{{.Name}}", "{{}}", "{{a | nope}}", "{{it's}}"])
def test_invalid_templates_are_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        references(text)


def test_references_have_names_and_positions() -> None:
    found = references("a {{input}} b {{steps.x.json.y | default(vars.z)}}")
    assert [(one.path, one.start, one.is_optional, one.step) for one in found] == [
        (("input",), 2, False, None),
        (("steps", "x", "json", "y"), 14, True, "x"),
        (("vars", "z"), 14, False, None),
    ]


# --- commands: every value in every place -----------------------------------------------------------------------------

PLACES = [
    f"printf '%s' {HOLE}",
    f"printf '%s' \"{HOLE}\"",
    f"printf '%s' '{HOLE}'",
    f"printf '%s' ''{HOLE}\"\"",
    f"printf '%s' {HOLE} | cat",
    f"x={HOLE}; printf '%s' \"$x\"",
    f'x="{HOLE}" && printf \'%s\' "${{x}}"',
    f"( printf '%s' {HOLE} )",
    f"if [ {HOLE} = {HOLE} ]; then printf '%s' '{HOLE}'; fi",
    f"for i in 1; do printf '%s' {HOLE}; done",
    f"# it's said\nprintf '%s' {HOLE} # isn't it",
    f"printf '%s' \\\n  {HOLE}",
    f"true || echo {HOLE} \"$(pwd)\"; printf '%s' {HOLE}",
]

HOSTILE = [
    "",
    "plain",
    "it's",
    'say "hi"',
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f"'; touch {CANARY}; '",
    f'"; touch {CANARY}; "',
    f"\ntouch {CANARY}\n",
    f"EOF\ntouch {CANARY}\nEOF\n",
    f"a[$(touch {CANARY})]",
    f"x); touch {CANARY}; (",
    f"&& touch {CANARY}",
    f"| touch {CANARY} #",
    "${HOME} $HOME $1 \\",
    "-n",
    "--help",
    "-",
    "*",
    "~",
    " two  words\t",
    "\n\n",
    "line\nbreaks\n\n",
    "!!",
    "%s %d",
    "\\n\\0\\",
    "ünïcödé \u202e \U0001f600",
    "{{input}}",
    "x" * 90_000,
]


def said_by(shell: str, command: str, env: dict[str, str], folder: Path) -> bytes:
    done = subprocess.run(
        [shell, "-c", command],
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **env},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == b"", (command, done.stderr)
    return done.stdout


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", PLACES)
def test_every_value_is_only_a_value_in_every_place(shell: str, command: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        text, env = values_of(value).shell(command)
        assert said_by(shell, text, env, tmp_path).decode() == value
        assert list(tmp_path.iterdir()) == [], (command, value)


FRAGMENTS = st.sampled_from(
    [
        "'",
        '"',
        "`",
        "$(",
        ")",
        "\\",
        "\n",
        ";",
        "|",
        "&",
        "#",
        "EOF",
        "$",
        "{",
        "}",
        " ",
        "-",
        f"touch {CANARY}",
        "*",
        "~",
    ]
)
ANYTHING = st.one_of(
    st.lists(FRAGMENTS, max_size=12).map("".join),
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
)


@st.composite
def words(draw: st.DrawFn, depth: int = 3) -> tuple[str, list[str]]:
    """Return a word of a command, and what it says: texts, and None for the value."""
    kinds = ["text", "hole", "single", "double"] + (["both"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "text":
            return "abc", ["abc"]
        case "hole":
            return HOLE, [HOLE]
        case "single":
            return f"'a \" $x {HOLE} b'", ['a " $x ', HOLE, " b"]
        case "double":
            return f'"a \' \\$x {HOLE} b"', ["a ' $x ", HOLE, " b"]
        case _:
            left, right = draw(words(depth - 1)), draw(words(depth - 1))
            return left[0] + right[0], left[1] + right[1]


@pytest.mark.proves("C-17")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words(), ANYTHING, st.sampled_from(SHELLS))
def test_words_of_any_shape_are_quoted_correctly(
    tmp_path: Path, word: tuple[str, list[str]], value: str, shell: str
) -> None:
    template, says = word
    text, env = values_of(value).shell(f"printf '%s' {template}")
    assert said_by(shell, text, env, tmp_path).decode() == "".join(value if part == HOLE else part for part in says)
    assert list(tmp_path.iterdir()) == []


def test_other_languages_read_values_from_the_environment() -> None:
    command = "#!/usr/bin/env python3\nimport os; print(os.environ['STEP_A_OUTPUT'])"
    check_command(command)
    assert values_of("said").shell(command) == (command, {"STEP_A_OUTPUT": "said"})
    with pytest.raises(UnsafeCommand, match="not read in commands for `#!/usr/bin/env python3`"):
        check_command("#!/usr/bin/env python3\nprint({{steps.a.output}})")


def test_a_command_without_templates_is_left_as_it_is() -> None:
    command = "curl -s x | sh <<EOF\n$(case x in x) echo `date`;; esac)\nEOF"
    check_command(command)
    assert values_of("said").shell(command) == (command, {})
    braces = "docker ps --format '{{\"{{\"}}.Names}}' | xargs echo"
    assert values_of("said").shell(braces) == ("docker ps --format '{{.Names}}' | xargs echo", {})


def test_arguments_are_values_as_they_are() -> None:
    values = values_of("a\0b\ud800 'c' $d")
    assert values.argv(["./run", "{{steps.a.output}}", "x={{steps.a.status}}"]) == (
        "./run",
        "a\ufffdb\ufffd 'c' $d",
        "x=completed",
    )
    with pytest.raises(Unresolved):
        values.argv(["./run", "{{steps.b.output}}"])


def test_variable_names() -> None:
    values = Values(
        input="i",
        inputs={"n": 1},
        vars={"my-var": "v"},
        state={"s": "t"},
        item={"x": "y"},
        index=2,
        steps={"a-b": StepValue("completed", "one"), "a_b": StepValue("completed", "two")},
    )
    command = (
        "echo {{input}} {{inputs.n}} {{my-var}} {{state.s}} {{item.x}} {{index}} {{steps.a-b.output | first-line}}"
    )
    assert values.shell(command)[1] == {
        "INPUT": "i",
        "INPUT_N": "1",
        "VAR_MY_VAR": "v",
        "STATE_S": "t",
        "ITEM_X": "y",
        "INDEX": "2",
        "STEP_A_B_OUTPUT_FIRST_LINE": "one",
    }
    text, env = values.shell("echo {{steps.a-b.output}} {{steps.a_b.output}} {{steps.a-b.output}}")
    assert text == 'echo "${STEP_A_B_OUTPUT}" "${STEP_A_B_OUTPUT_2}" "${STEP_A_B_OUTPUT}"'
    assert env == {"STEP_A_B_OUTPUT": "one", "STEP_A_B_OUTPUT_2": "two"}


def test_variables_that_a_command_names_are_there() -> None:
    assert values_of("x", vars={"v": 1}, input="i").shell('echo "$STEP_A_OUTPUT" "$VAR_V" "$INPUT" $STEP_NO_OUTPUT')[
        1
    ] == {
        "STEP_A_OUTPUT": "x",
        "VAR_V": "1",
        "INPUT": "i",
    }


def test_unrepresentable_characters_are_replaced() -> None:
    assert values_of("a\0b\ud800c").shell(f"echo {HOLE}")[1] == {"STEP_A_OUTPUT": "a\ufffdb\ufffdc"}


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("command", [f"printf '%s' {HOLE} | wc -c", f"x={HOLE}; printf '%s' \"$x\" | wc -c"])
async def test_values_that_no_environment_has_room_for(command: str, tmp_path: Path) -> None:
    value = f"$(touch {CANARY})'\"\n" * 20_000
    text, env = values_of(value).shell(command)
    ran = await run_shell(text, directory=tmp_path, env={"PATH": os.environ["PATH"], **env}, seconds=60)
    assert ran.error is None
    assert int(ran.output) == len(value)
    assert not os.path.exists(tmp_path / CANARY)  # noqa: ASYNC240


def test_the_page_has_every_command_that_takes_values() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "workflows" / "values.md").read_text(encoding="utf-8")
    arguments = re.search(r"of one of these commands: (.*?)\n- ", page, re.DOTALL)
    sinks = re.search(r"- Pipes lead into (.*?), and into nothing else", page, re.DOTALL)
    assert arguments
    assert sinks
    listed = re.sub(r"\([^)]*\)", "", arguments[1])
    assert set(re.findall(r"`([^`]+)`", listed)) == {name for name, row in PROGRAMS.items() if row.takes_values}
    assert set(re.findall(r"`([^`]+)`", sinks[1])) == {name for name, row in PROGRAMS.items() if row.is_sink}


def test_the_page_has_every_filter_and_function() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "workflows" / "values.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(?!\{\{)([a-z-]+)[`(]", cell)}
    assert named == {*FILTERS, *FUNCTIONS}
    for root in ROOTS:
        assert re.search(rf"\{{\{{{root}\b", page), root
