"""Which test claims to prove which requirement: `proves` marks, golden cases and comments in the console's tests.

Tests are read, not imported, so that a claim counts even where an optional peer is not installed. What the claims are
compared with is requirements.toml; who compares is test_requirements.py, who shows them docs/features_table.py.
"""

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
MANIFEST: Mapping[str, Any] = tomllib.loads((ROOT / "tests" / "requirements.toml").read_text(encoding="utf-8"))
REQUIREMENTS: Mapping[str, Mapping[str, str]] = MANIFEST["requirements"]

_IN_TYPESCRIPT = re.compile(
    r"""^ *// proves: (?P<ids>[\w-]+(?:, [\w-]+)*)\n *(?:it|describe)\("(?P<name>[^"]+)\"""", re.M
)


class Claim(NamedTuple):
    """A test that claims to prove a requirement: `file::name`, or the file alone if all of its tests do."""

    id: str
    place: str

    @property
    def is_test(self) -> bool:
        """Whether it stands where tests are run: on a test, in the conformance matrix, or in a file of tests."""
        file, *names = self.place.split("::")
        if file.endswith("conformance/table.py"):
            return bool(names)
        if file.endswith(".py"):
            return Path(file).name.startswith("test_") and all(name.startswith(("test_", "Test")) for name in names)
        return True


def claims_in(source: str, name: str) -> Iterator[Claim]:
    """Every id that a `proves` mark names: on a function, a class, a module, a parameter set or a row of a table."""

    def below(node: ast.AST, place: str) -> Iterator[Claim]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and _is_proves(child.func):
                yield from (Claim(id, place) for id in _ids(child, name))
            else:
                yield from below(child, _named(child, place))

    yield from below(ast.parse(source, name), name)


def claims_in_typescript(source: str, name: str) -> Iterator[Claim]:
    """Every id in a comment `// proves: 0-14` above a test or a group of tests."""
    for found in _IN_TYPESCRIPT.finditer(source):
        yield from (Claim(id, f"{name}::{found['name']}") for id in found["ids"].split(", "))


def claims_under(root: Path) -> list[Claim]:
    """Every claim of a repository: of its Python tests, its golden cases, each of which is a test, and its pages'."""
    tests, pages = root / "tests", root / "web" / "src"
    written = [claim for file in sorted(tests.rglob("*.py")) for claim in claims_in(*_read(file, root))]
    golden = [
        Claim(requirement, f"{file.relative_to(root).as_posix()}[{position}]")
        for file in sorted(tests.glob("golden/*/*.json"))
        for position, case in enumerate(json.loads(file.read_bytes()))
        for requirement in case.get("proves", ())
    ]
    shown = [claim for file in sorted(pages.rglob("*.test.ts*")) for claim in claims_in_typescript(*_read(file, root))]
    return written + golden + shown


def _read(file: Path, root: Path) -> tuple[str, str]:
    return file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()


def _is_proves(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name == "proves"
    return False


def _ids(mark: ast.Call, name: str) -> Iterator[str]:
    for argument in mark.args:
        if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
            raise ValueError(f"{name}:{mark.lineno}: write the id as a plain string, so that it can be found")
        yield argument.value


def _named(node: ast.AST, place: str) -> str:
    """Return what stands below a node as: the function, the class, or the row that says its name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return f"{place}::{name}"
        case ast.Call(func=ast.Name(id="Row"), keywords=said):
            names = [ast.literal_eval(one.value) for one in said if one.arg == "name"]
            return "::".join([place, *names])
    return place
