"""Files, functions and names in `src` stay small and honest, or say next to themselves why not.

A file over 500 lines carries `# size: <reason>` in its first 40 lines; a function over 60 lines carries it
on its `def` line or in the comment directly above. The usual file is near 150 lines.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
FILE_REASON_WITHIN = 40

REASON = re.compile(r"#\s*size:\s*\S")
# A name that fits everything says nothing; a `_v2` beside its predecessor means that one of them should go.
VAGUE_NAME = re.compile(r"_*(utils|helpers|common|misc|manager|.+_v\d+)_*")


def problems(src: Path) -> list[str]:
    """One line for each broken rule in the Python files below `src`."""
    found = []
    for path in sorted(src.rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        where = path.relative_to(src)
        found += [f"{where}: {name}" for name in _vague_names(where)]
        if len(lines) > MAX_FILE_LINES and not _has_reason(lines[:FILE_REASON_WITHIN]):
            found.append(f"{where}: {len(lines)} lines without a reason")
        found += [f"{where}:{line}" for line in _long_functions(lines)]
    return found


def _vague_names(where: Path) -> Iterator[str]:
    name = where.parent.name if where.name == "__init__.py" else where.stem
    if VAGUE_NAME.fullmatch(name):
        yield f"a module must not be called {name!r}"


def _long_functions(lines: list[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES and not _has_reason(_beside(node, lines)):
                yield f"{node.lineno}: {node.name} has {length} lines without a reason"


def _beside(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[str]:
    """The `def` line, the decorators and the comment lines directly above them."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    start = first - 1
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return lines[start : node.lineno]


def _has_reason(lines: list[str]) -> bool:
    return any(REASON.search(line) for line in lines)


def test_src_keeps_the_rules():
    assert problems(SRC) == []


def _function(name: str, length: int) -> list[str]:
    return [f"def {name}():", *["    pass"] * (length - 1)]


@pytest.fixture
def src(tmp_path: Path) -> Path:
    (tmp_path / "accord").mkdir()
    return tmp_path


def _write(src: Path, name: str, lines: list[str]) -> None:
    path = src / "accord" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_long_file_needs_a_reason_near_its_top(src: Path):
    _write(src, "fits.py", ["x = 1"] * 500)
    _write(src, "long.py", ["x = 1"] * 501)
    _write(src, "late.py", [*["x = 1"] * 40, "# size: too far down", *["x = 1"] * 500])
    _write(src, "empty.py", ["# size:", *["x = 1"] * 500])
    _write(src, "explained.py", ["# size: one table", *["x = 1"] * 500])

    assert problems(src) == [
        "accord/empty.py: 501 lines without a reason",
        "accord/late.py: 541 lines without a reason",
        "accord/long.py: 501 lines without a reason",
    ]


def test_a_long_function_needs_a_reason_beside_it(src: Path):
    _write(src, "fits.py", _function("fits", 60))
    _write(src, "long.py", ["x = 1", *_function("long", 61)])
    _write(src, "apart.py", ["# size: not directly above", "", *_function("apart", 61)])
    _write(src, "method.py", ["class A:", *["    " + line for line in _function("method", 61)]])
    _write(src, "coroutine.py", ["async " + _function("coroutine", 61)[0], *_function("", 61)[1:]])

    assert problems(src) == [
        "accord/apart.py:3: apart has 61 lines without a reason",
        "accord/coroutine.py:1: coroutine has 61 lines without a reason",
        "accord/long.py:2: long has 61 lines without a reason",
        "accord/method.py:2: method has 61 lines without a reason",
    ]


@pytest.mark.parametrize(
    "above",
    [
        ["# size: one state machine"],
        ["# size: one state machine", "# and its table"],
        ["# size: one state machine", "@staticmethod"],
        ["@staticmethod", "# size: one state machine"],
    ],
)
def test_a_reason_directly_above_a_function_is_found(src: Path, above: list[str]):
    _write(src, "explained.py", [*above, *_function("explained", 61)])

    assert problems(src) == []


def test_a_reason_on_the_def_line_is_found(src: Path):
    head, *body = _function("explained", 61)
    _write(src, "explained.py", [f"{head}  # size: one state machine", *body])

    assert problems(src) == []


@pytest.mark.parametrize("name", ["utils", "helpers", "common", "misc", "manager", "_utils", "handler_v2"])
def test_vague_names_are_refused(src: Path, name: str):
    _write(src, f"{name}.py", ["x = 1"])
    _write(src, f"package/{name}/__init__.py", ["x = 1"])

    assert set(problems(src)) == {
        f"accord/{name}.py: a module must not be called {name!r}",
        f"accord/package/{name}/__init__.py: a module must not be called {name!r}",
    }


@pytest.mark.parametrize("name", ["v1", "v03", "v03_rest", "commons", "push"])
def test_telling_names_are_allowed(src: Path, name: str):
    _write(src, f"{name}.py", ["x = 1"])

    assert problems(src) == []
