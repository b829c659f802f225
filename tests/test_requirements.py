"""The requirements manifest against the tests: every claim is known, every finished milestone is proven.

Tests are read, not imported, so that a claim counts even where an optional peer is not installed.
"""

import ast
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent, fill
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
MANIFEST = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
REQUIREMENTS: Mapping[str, Mapping[str, str]] = MANIFEST["requirements"]


class Claim(NamedTuple):
    """A place in the tests that claims to prove a requirement."""

    id: str
    place: str


def claims_in(source: str, name: str) -> Iterator[Claim]:
    """Every id that a `proves` mark names: on a function, a class, a module or a parameter set."""
    for node in ast.walk(ast.parse(source, name)):
        if not (isinstance(node, ast.Call) and _is_proves(node.func)):
            continue
        place = f"{name}:{node.lineno}"
        for argument in node.args:
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                raise ValueError(f"{place}: write the id as a plain string, so that it can be found")
            yield Claim(argument.value, place)


def claims_under(folder: Path) -> list[Claim]:
    """Every claim of the Python files below a folder, and of the golden cases, each of which is a test."""
    written = [
        claim
        for file in sorted(folder.rglob("*.py"))
        for claim in claims_in(file.read_text(encoding="utf-8"), str(file.relative_to(folder)))
    ]
    golden = [
        Claim(requirement, f"{file.relative_to(folder)}[{position}]")
        for file in sorted(folder.glob("golden/*/*.json"))
        for position, case in enumerate(json.loads(file.read_bytes()))
        for requirement in case.get("proves", ())
    ]
    return written + golden


def by_milestone(ids: Iterable[str]) -> dict[str, list[str]]:
    """Ids in the manifest's order, grouped by the milestone that proves them."""
    wanted = set(ids)
    groups: dict[str, list[str]] = {milestone: [] for milestone in MANIFEST["milestones"]}
    for id_, row in REQUIREMENTS.items():
        if id_ in wanted:
            groups[row["milestone"]].append(id_)
    return {milestone: found for milestone, found in groups.items() if found}


def _is_proves(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name == "proves"
    return False


@pytest.fixture(scope="module")
def claims() -> list[Claim]:
    return claims_under(TESTS)


def test_the_manifest_is_well_formed() -> None:
    assert set(MANIFEST) == {"finished", "milestones", "requirements"}
    assert set(MANIFEST["finished"]) <= set(MANIFEST["milestones"])
    for id_, row in REQUIREMENTS.items():
        assert set(row) == {"milestone", "title"}, id_
        assert row["milestone"] in MANIFEST["milestones"], id_
        assert 1 <= len(row["title"].split()) <= 12, id_


def test_every_claimed_requirement_exists(claims: list[Claim]) -> None:
    unknown = [f"{claim.place} names {claim.id}" for claim in claims if claim.id not in REQUIREMENTS]
    assert not unknown, "not in tests/requirements.toml:\n" + "\n".join(unknown)


def test_only_unfinished_milestones_have_requirements_without_a_test(claims: list[Claim]) -> None:
    unproven = by_milestone(REQUIREMENTS.keys() - {claim.id for claim in claims})
    for milestone, ids in unproven.items():
        line = f"{milestone}: {len(ids)} without a test: {' '.join(ids)}"
        print(fill(line, width=110, break_on_hyphens=False))
    overdue = [f"{milestone}: {' '.join(unproven.get(milestone, []))}" for milestone in MANIFEST["finished"]]
    assert not unproven.keys() & set(MANIFEST["finished"]), "no test proves:\n" + "\n".join(overdue)


# The scanner itself

SYNTHETIC = dedent("""
    import pytest
    from pytest import mark

    pytestmark = [pytest.mark.slow, pytest.mark.proves("module")]
    proves = pytest.mark.proves

    @pytest.mark.proves("function-1", "function-2")
    @pytest.mark.parametrize("value", [
        1,
        pytest.param(2, marks=pytest.mark.proves("param")),
        pytest.param(3, marks=[mark.xfail, mark.proves("params")]),
    ])
    def test_one(value): ...

    @mark.proves("class")
    class TestMany:
        @proves("alias")
        async def test_two(self):
            unrelated("not-this")
            "pytest.mark.proves('nor-this')"  # pytest.mark.proves("nor-that")
""")


def test_the_scanner_finds_marks_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "test_synthetic.py").write_text(SYNTHETIC)
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "golden" / "v1").mkdir(parents=True)
    (tmp_path / "golden" / "v1" / "x.json").write_text('[{"note": "none"}, {"proves": ["golden"]}]')
    found = claims_under(tmp_path)
    assert {claim.id for claim in found} == {
        "module",
        "function-1",
        "function-2",
        "param",
        "params",
        "class",
        "alias",
        "golden",
    }
    assert Claim("module", str(Path("deep", "er", "test_synthetic.py")) + ":5") in found


@pytest.mark.parametrize("hidden", ["*IDS", "NAME", "f'{x}'", "1"])
def test_the_scanner_refuses_ids_that_it_cannot_read(hidden: str) -> None:
    with pytest.raises(ValueError, match=r"^t\.py:1: write the id"):
        list(claims_in(f"pytestmark = pytest.mark.proves({hidden})", "t.py"))


def test_ids_are_grouped_by_milestone() -> None:
    assert by_milestone(["C-17", "2-27", "2-22"]) == {"protocol": ["2-22", "2-27"], "workflows": ["C-17"]}
    assert by_milestone([]) == {}
