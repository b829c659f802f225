"""Values in texts and in commands: whatever a value is, a shell takes it for a value or the command is refused."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accord.workflows.functions import FILTERS, FUNCTIONS
from accord.workflows.steps.command import run_shell
from accord.workflows.templates import ROOTS, references
from accord.workflows.values import BadExpression, StepValue, Unresolved, UnsafeCommand, Values, check_command

SHELLS = [shell for shell in ("sh", "bash") if shutil.which(shell)]
CANARY = "pwned"
HOLE = "{{steps.a.output}}"


def values_of(said: str, **more: Any) -> Values:
    return Values(steps={"a": StepValue("completed", said)}, **more)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-39", "1-40")
@pytest.mark.parametrize(
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
def test_what_a_value_says_is_never_read_as_a_template(said: str) -> None:
    assert values_of(said).text(f"<{HOLE}>") == f"<{said}>"
    assert values_of("{{input}}" + said).text(HOLE) == "{{input}}" + said


@pytest.mark.parametrize("text", ["{{steps.x.output", "{{.Name}}", "{{}}", "{{a | nope}}", "{{it's}}"])
def test_what_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        references(text)


def test_references_say_what_a_text_needs_and_where() -> None:
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
    f"export X={HOLE}\nprintf '%s' \"$X\"",
    f"f() {{ printf '%s' \"$1\"; }}; f {HOLE}",
    f"( printf '%s' {HOLE} )",
    f"if [ {HOLE} = {HOLE} ]; then printf '%s' '{HOLE}'; fi",
    f"for i in {HOLE}; do printf '%s' \"$i\"; done",
    f"case x in x) printf '%s' {HOLE} ;; esac",
    f'sh -c \'printf "%s" "$1"\' _ {HOLE}',
    f"# it's {HOLE}\nprintf '%s' {HOLE} # {HOLE} isn't",
    f"printf '%s' \\\n  {HOLE}",
    f"true || echo {HOLE} `echo x` ${{y:-\"$(pwd)\"}} $((1 + 2)); printf '%s' {HOLE}",
]
ENDED_BY_DOT = [
    f"printf '%s' \"$(printf '%s' {HOLE}; printf .)\"",
    f"printf '%s' \"$(printf '%s' \"{HOLE}\"; printf .)\"",
    f"printf '%s' \"$(printf '%s' '{HOLE}'; printf .)\"",
    f"printf '%s' \"$(printf '%s' \"$(printf '%s' {HOLE}; printf .)\")\"",
    f"x=$(printf '%s' {HOLE}; printf .); printf '%s' \"$x\"",
    f"cat <<EOF\n{HOLE}.\nEOF",
    f"cat <<'EOF'\n{HOLE}.\nEOF",
    f'cat <<"EOF"\n{HOLE}.\nEOF\n',
    f"cat <<\\EOF\n{HOLE}.\nEOF\n",
    f"cat <<-EOF\n\t{HOLE}.\n\tEOF\n",
    f"cat <<A <<'B'\n{HOLE} $(echo no) it's\nA\n{HOLE}.\nB\n",
    f"printf '%s' \"$(cat <<EOF\n{HOLE}.\nEOF\n)\"",
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
@pytest.mark.parametrize("command", PLACES + ENDED_BY_DOT)
def test_every_value_is_only_a_value_in_every_place(shell: str, command: str, tmp_path: Path) -> None:
    for value in HOSTILE:
        text, env = values_of(value).shell(command)
        said = said_by(shell, text, env, tmp_path).decode()
        assert (said.rstrip("\n").rstrip(".") if command in ENDED_BY_DOT else said) == value
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
    kinds = ["text", "hole", "single", "double"] + (["both", "inner"] if depth else [])
    match draw(st.sampled_from(kinds)):
        case "text":
            return "abc", ["abc"]
        case "hole":
            return HOLE, [HOLE]
        case "single":
            return f"'a \" $x {HOLE} b'", ['a " $x ', HOLE, " b"]
        case "double":
            return f'"a \' \\$x {HOLE} b"', ["a ' $x ", HOLE, " b"]
        case "both":
            left, right = draw(words(depth - 1)), draw(words(depth - 1))
            return left[0] + right[0], left[1] + right[1]
        case _:
            inner, says = draw(words(depth - 1))
            return f"\"$(printf '%s' {inner}; printf .)\"", [*says, "."]


@pytest.mark.proves("C-17")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words(), ANYTHING, st.sampled_from(SHELLS))
def test_words_of_any_shape_say_what_they_should(
    tmp_path: Path, word: tuple[str, list[str]], value: str, shell: str
) -> None:
    template, says = word
    text, env = values_of(value).shell(f"printf '%s' {template}")
    assert said_by(shell, text, env, tmp_path).decode() == "".join(value if part == HOLE else part for part in says)
    assert list(tmp_path.iterdir()) == []


TOKENS = st.sampled_from(
    [*"'\"`\\;|&><(){}!=#$", "$(", "&&", "||", "A=", "${", "$((", "))", "((", "[[", "]]", "$'", "<(", "<<<"]
    + [" ", "\n", "\t", "echo ", "printf %s ", "cat ", "eval ", "sh ", "sh -c ", "env ", "exec ", "export ", "$A", "x"]
    + [
        "<<E\n",
        "<<'E'\n",
        "<<-E\n",
        "\nE\n",
        "case x in ",
        "x) ",
        ";; esac",
        "if ",
        "then ",
        "fi",
        "for i in ",
        "do ",
        "done",
    ]
    + [HOLE] * 6
)


@pytest.mark.proves("C-17")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(TOKENS, min_size=1, max_size=14).map(lambda tokens: "".join([*tokens, HOLE])),
    st.sampled_from(
        [
            "./hostile",
            f"touch {CANARY}",
            f"$(touch {CANARY})",
            f"\ntouch {CANARY}\n",
            f"a[$(touch {CANARY})]",
            f"';touch {CANARY};'",
            f'";touch {CANARY};"',
            f"E\ntouch {CANARY}\n",
            f"x);touch {CANARY}",
        ]
    ),
    st.sampled_from(SHELLS),
)
def test_no_command_whatever_its_shape_runs_a_value(tmp_path: Path, command: str, value: str, shell: str) -> None:
    assume(not re.search(r"\(\s*\)", command))  # a function that calls itself would not end
    (tmp_path / CANARY).unlink(missing_ok=True)  # of the example before, which has failed then
    hostile = tmp_path / "hostile"
    hostile.write_text(f"#!/bin/sh\ntouch {CANARY}\n")
    hostile.chmod(0o755)
    try:
        text, env = values_of(value).shell(command)
    except (UnsafeCommand, BadExpression):
        return
    subprocess.run(
        [shell, "-c", text],
        env={"PATH": os.environ["PATH"], **env},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert not (tmp_path / CANARY).exists(), (command, text)


@pytest.mark.proves("C-17")
@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("{{steps.a.output}}", "which command is run"),
        ("true; {{steps.a.output}} x", "which command is run"),
        ("if {{steps.a.output}}; then true; fi", "which command is run"),
        ("A=1 {{steps.a.output}}", "which command is run"),
        ("sudo -n {{steps.a.output}}", "which command is run"),
        ("timeout 5 {{steps.a.output}}", "which command is run"),
        ("$TOOL {{steps.a.output}}", "which command is run"),
        ("$(printf %s {{steps.a.output}})", "which command is run"),
        ("eval echo {{steps.a.output}}", "`eval` runs"),
        ('eval "$(echo {{steps.a.output}})"', "`eval` runs"),
        ("sh -c 'echo {{steps.a.output}}'", "program of `sh`"),
        ('bash -o pipefail -lc "echo {{steps.a.output}}"', "program of `bash`"),
        ("python3 -c 'print(\"{{steps.a.output}}\")'", "program of `python`"),
        ("node -e{{steps.a.output}}", "program of `node`"),
        ("awk '{print \"{{steps.a.output}}\"}' f", "program of `awk`"),
        ("sed s/x/{{steps.a.output}}/ f", "program of `sed`"),
        ("ssh host echo {{steps.a.output}}", "`ssh` runs"),
        (". {{steps.a.output}}", "runs what"),
        ("trap {{steps.a.output}} EXIT", "`trap` runs"),
        ("export {{steps.a.output}}", "which variable"),
        ("[[ {{steps.a.output}} -eq 1 ]]", "runs what"),
        ("(( {{steps.a.output}} > 1 ))", "calculate"),
        ("echo $(( {{steps.a.output}} + 1 ))", "calculate"),
        ("echo ${X:-{{steps.a.output}}}", r"\$\{\.\.\}"),
        ("echo `cat {{steps.a.output}}`", r"write \$\("),
        ("echo \\{{steps.a.output}}", "backslash"),
        ('echo "\\{{steps.a.output}}"', "backslash"),
        ("echo ${{steps.a.output}}", "dollar"),
        ('echo "${{steps.a.output}}"', "dollar"),
        ("echo $'it\\'s' {{steps.a.output}}", "differently by different shells"),
        ("cat <<{{steps.a.output}}\nx\nx", "differently"),
        ("echo $(case x in x) echo {{steps.a.output}};; esac)", "differently"),
        ("echo {{steps.a.output}} | sh", "a shell would run it"),
        ("{ echo {{steps.a.output}}; } | bash -s", "a shell would run it"),
        ("(echo {{steps.a.output}}) | sudo sh", "a shell would run it"),
        ("echo {{steps.a.output}} |\n  sh", "a shell would run it"),
        ("bash <<< {{steps.a.output}}", "a shell would run it"),
        ("bash < {{steps.a.output}}", "a shell would run it"),
        ("bash <(echo {{steps.a.output}})", "a shell would run it"),
        ("cat <<EOF |\n{{steps.a.output}}\nEOF\nsh", "a shell would run it"),
        ('eval "$(cat <<EOF\n{{steps.a.output}}\nEOF\n)"', "`eval` runs"),
        ("sh {{steps.a.output}}", "program of `sh`"),
        ("python3 -u scripts/{{steps.a.output}}.py", "program of `python`"),
        ("/usr/bin/python3.11 -c {{steps.a.output}}", "program of `python`"),
        ("sudo -u bob {{steps.a.output}}", "which command is run"),
        ("xargs -I {} sh -c {{steps.a.output}}", "which command|program of"),
        ("sh <<EOF\necho {{steps.a.output}}\nEOF", "a shell would run it"),
        ("ssh host <<'EOF'\necho {{steps.a.output}}\nEOF", "a shell would run it"),
        ("eval sh <<E\n{{steps.a.output}}", "a shell would run it"),
        ("source /dev/stdin <<E\n{{steps.a.output}}\nE", "a shell would run it"),
        ("eval sh <<< {{steps.a.output}}", "a shell would run it"),
        ("find . -exec {{steps.a.output}} \\;", "which command is run"),
        ("find . -name x -exec {{steps.a.output}} ;", "which command is run"),
        ("find . -execdir sudo sh -c {{steps.a.output}} {} +", "program of `sh`"),
        ("find . -exec ls {} + -ok {{steps.a.output}} \\;", "which command is run"),
        ("watch ls {{steps.a.output}}", "`watch` runs"),
        ("#!/usr/bin/env python3\nprint({{steps.a.output}})", "is no shell"),
        ("echo \0", "NUL"),
    ],
)
def test_places_that_cannot_be_made_safe_are_refused(command: str, why: str) -> None:
    for attempt in (lambda: values_of("x").shell(command), lambda: check_command(command)):
        with pytest.raises(UnsafeCommand, match=why):
            attempt()


@pytest.mark.parametrize(
    "command",
    [
        "{{tool}} --version",
        "{{vars.tool}} {{steps.a.output}}",
        "awk -v x={{steps.a.output}} '{print x}' f",
        "sed -n 3p {{steps.a.output}}",
        "find . -name {{steps.a.output}} -exec ls {} +",
        "find . -exec grep {{steps.a.output}} {} \\;",
        "find . -exec ls {} \\; -name {{steps.a.output}}",
        "python3 script.py -c {{steps.a.output}}",
        "python3 script.py <<EOF\n{{steps.a.output}}\nEOF",
        "bash script.sh {{steps.a.output}}",
        "git commit -m {{steps.a.output}} 2>&1 && git push",
        "echo {{steps.a.output}}; curl -s x | sh",
        "sudo apt-get install {{steps.a.output}}",
        "timeout -k 5 10 make x={{steps.a.output}}",
        "python3 -c 'import sys; print(sys.argv)' {{steps.a.output}}",
        "cat < {{steps.a.output}} > y",
        "#!/bin/bash\necho {{steps.a.output}}",
        "#!/usr/bin/env python3\nimport os; print(os.environ['STEP_A_OUTPUT'])",
    ],
)
def test_what_is_safe_is_not_refused(command: str) -> None:
    check_command(command)
    text, env = values_of("said", vars={"tool": "git"}).shell(command)
    assert "{{" not in text
    assert "said" in env.values() or "tool" in command


def test_what_a_variable_is_called() -> None:
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


def test_what_no_variable_can_hold_is_replaced() -> None:
    assert values_of("a\0b\ud800c").shell(f"echo {HOLE}")[1] == {"STEP_A_OUTPUT": "a\ufffdb\ufffdc"}


@pytest.mark.proves("C-17")
@pytest.mark.parametrize("command", [f"printf '%s' {HOLE} | wc -c", f"cat <<EOF | wc -c\n{HOLE}\nEOF"])
async def test_values_that_no_environment_has_room_for(command: str, tmp_path: Path) -> None:
    value = f"$(touch {CANARY})'\"\n" * 20_000
    text, env = values_of(value).shell(command)
    ran = await run_shell(text, directory=tmp_path, env={"PATH": os.environ["PATH"], **env}, seconds=60)
    assert ran.error is None
    assert int(ran.output) == len(value) + ("EOF" in command)
    assert not os.path.exists(tmp_path / CANARY)  # noqa: ASYNC240


def test_the_page_has_every_filter_and_function() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "workflows" / "values.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(?!\{\{)([a-z-]+)[`(]", cell)}
    assert named == {*FILTERS, *FUNCTIONS}
    for root in ROOTS:
        assert re.search(rf"\{{\{{{root}\b", page), root
