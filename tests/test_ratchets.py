"""Holds figures of size and language that may only improve.

Each figure has a limit. A figure above its limit fails, and so does a limit that a better figure has left behind: lower
the limit in the commit that improved the figure. `pytest -s` prints the table.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "accord"

LIMITS = {
    "modules": 409,
    "lines": 95_400,
    "class definitions whose name is defined twice, %": 0.9,
    "modules named by a gerund": 0,
    "module docstrings that open with a question word": 0,
    "functions named by a vague verb, %": 1.7,
    "variables with a vague name, %": 3.7,
    "docstrings with ruled-out words, %": 0.2,
    "sentences of the documentation with ruled-out words, %": 2.1,
}
"""The highest allowed value of each figure."""

VAGUE_LOCALS = frozenset(
    [
        "asked",
        "begun",
        "found",
        "gone",
        "held",
        "heard",
        "kept",
        "known",
        "left",
        "made",
        "mine",
        "one",
        "rest",
        "said",
        "seen",
        "shown",
        "stated",
        "told",
        "wanted",
    ]
)
"""Names of variables that do not say what they hold."""

VAGUE_VERBS = re.compile(
    r"_*(ask|asked|begun|found|go_on|goes_on|hear|heard|kept|know|known|look|looked|made|named|rests|said|say|seen|shown"
    r"|stands|stated|take|taken|tell|told|wanted)(_|$)"
)
"""Names of functions that do not say what they do."""

SLACK = 0.01
"""How far a figure may be below its limit, as a share of the limit, before the limit must be lowered."""

FIELD_NOUNS = frozenset({"encoding", "monitoring", "routing", "tracing"})
"""Words with the form of a gerund that are nouns of the field."""

QUESTION = re.compile(r"(What|How|Where|Which|Whether|Who|Whose|When)\b")

RULED_OUT = re.compile(
    r"\b(whoever|whatever|those who|somebody|someone else|nobody|elsewhere|anew|for ever\b|go(es)? on|(is|are) told"
    r"|that one|one that|is no\b|is none|what (it|is|was|they|an?|the|comes|he)\b)",
    re.IGNORECASE,
)
"""Words and clauses that have a technical noun in the glossary."""


def trees() -> dict[str, ast.Module]:
    """Return the modules of the package by their path."""
    return {str(path.relative_to(SRC)): ast.parse(path.read_text("utf-8")) for path in sorted(SRC.rglob("*.py"))}


def lines() -> int:
    """Return the number of lines of the package."""
    return sum(path.read_text("utf-8").count("\n") for path in SRC.rglob("*.py"))


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, its classes and its functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def share(texts: list[str]) -> float:
    """Return the percentage of texts with ruled-out words."""
    return 100 * sum(bool(RULED_OUT.search(text)) for text in texts) / len(texts)


def duplicated_class_names(modules: dict[str, ast.Module]) -> float:
    """Return the percentage of class definitions whose name another class has."""
    names = Counter(node.name for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return 100 * sum(count for count in names.values() if count > 1) / names.total()


def is_gerund(path: str) -> bool:
    """Whether a module is named by a gerund that is not a noun of the field."""
    stem = Path(path).stem.strip("_")
    return bool(re.fullmatch(r"[a-z]+ing", stem)) and stem not in FIELD_NOUNS


def sentences() -> list[str]:
    """Return the sentences of the README and the documentation, without code blocks."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = (re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL) for page in pages)
    parts = (part for text in texts for part in re.split(r"(?<=[.!?])\s+|\n\s*\n|\n[-*|#]", text))
    return [part for part in parts if len(part.split()) >= 4]


def functions(modules: dict[str, ast.Module]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods of the package."""
    for tree in modules.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def vague_functions(modules: dict[str, ast.Module]) -> float:
    """Return the percentage of functions whose name is a vague verb."""
    names = [function.name for function in functions(modules)]
    return 100 * sum(bool(VAGUE_VERBS.match(name)) for name in names) / len(names)


def vague_locals(modules: dict[str, ast.Module]) -> float:
    """Return the percentage of parameters and variables of functions whose name is vague."""
    names: list[str] = []
    for function in functions(modules):
        parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        stored = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        names += parameters | stored
    return 100 * sum(name in VAGUE_LOCALS for name in names) / len(names)


def opens_with_question(tree: ast.Module) -> bool:
    """Whether a module's docstring opens with a question word."""
    return bool(QUESTION.match(ast.get_docstring(tree) or ""))


FIGURES: dict[str, Callable[[dict[str, ast.Module]], float]] = {
    "modules": len,
    "lines": lambda _: lines(),
    "class definitions whose name is defined twice, %": duplicated_class_names,
    "modules named by a gerund": lambda modules: sum(map(is_gerund, modules)),
    "module docstrings that open with a question word": lambda modules: sum(map(opens_with_question, modules.values())),
    "functions named by a vague verb, %": vague_functions,
    "variables with a vague name, %": vague_locals,
    "docstrings with ruled-out words, %": lambda modules: share(
        [text for tree in modules.values() for text in docstrings(tree)]
    ),
    "sentences of the documentation with ruled-out words, %": lambda _: share(sentences()),
}


@pytest.fixture(scope="module")
def modules() -> dict[str, ast.Module]:
    return trees()


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_only_improves(figure: str, modules: dict[str, ast.Module]):
    value, limit = FIGURES[figure](modules), LIMITS[figure]
    print(f"{figure}: {value:g} (limit {limit:g})")

    assert value <= limit
    assert value >= limit * (1 - SLACK) - 0.5, f"lower the limit of {figure!r} to {value:g}"


@pytest.mark.parametrize(
    ("path", "expected"), [("core/driving.py", True), ("core/tracing.py", False), ("core/run.py", False)]
)
def test_gerunds_are_found(path: str, expected: bool):
    assert is_gerund(path) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Whoever asks is told.", 100),
        ("The page that they asked for goes on.", 100),
        ("Return the caller's open tasks.", 0),
    ],
)
def test_ruled_out_words_are_found(text: str, expected: float):
    assert share([text]) == expected
