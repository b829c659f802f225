"""Everything public says what it is for: modules, classes, functions and methods of the package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "accord"


def undocumented(node: ast.Module | ast.ClassDef, name: str) -> Iterator[str]:
    """What is public below a node and has no docstring; an overload is explained where it is implemented."""
    for child in node.body:
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or child.name.startswith("_"):
            continue
        if ast.get_docstring(child) is None and not any(map(_is_overload, child.decorator_list)):
            yield f"{name}.{child.name}"
        if isinstance(child, ast.ClassDef):
            yield from undocumented(child, f"{name}.{child.name}")


def _is_overload(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "overload"


@pytest.mark.proves("3-15")
def test_everything_public_has_a_docstring() -> None:
    silent = []
    for file in sorted(PACKAGE.rglob("*.py")):
        name, module = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts), ast.parse(file.read_bytes())
        silent += [name] * (ast.get_docstring(module) is None) + list(undocumented(module, name))
    assert silent == []


def test_empty_docstrings_are_found() -> None:
    module = ast.parse(
        "class A:\n '''x'''\n def b(self): ...\n def _c(self): ...\n@overload\ndef d(): ...\ndef e(): ..."
    )
    assert list(undocumented(module, "m")) == ["m.A.b", "m.e"]
