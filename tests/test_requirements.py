"""The requirements manifest against the tests: every claim is known, every finished milestone is proven."""

from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent, fill

import pytest

from docs import features_table
from tests.claims import MANIFEST, REQUIREMENTS, ROOT, Claim, claims_in, claims_in_typescript, claims_under


def by_milestone(ids: Iterable[str]) -> dict[str, list[str]]:
    """Ids in the manifest's order, grouped by the milestone that proves them."""
    wanted = set(ids)
    groups: dict[str, list[str]] = {milestone: [] for milestone in MANIFEST["milestones"]}
    for id_, row in REQUIREMENTS.items():
        if id_ in wanted:
            groups[row["milestone"]].append(id_)
    return {milestone: found for milestone, found in groups.items() if found}


@pytest.fixture(scope="module")
def claims() -> list[Claim]:
    return claims_under(ROOT)


def test_the_manifest_is_well_formed() -> None:
    assert set(MANIFEST) == {"finished", "milestones", "requirements"}
    assert set(MANIFEST["finished"]) <= set(MANIFEST["milestones"])
    for id_, row in REQUIREMENTS.items():
        members = {"milestone", "title"} | ({"lives"} if features_table.is_founding(id_) else set())
        assert set(row) == members, id_
        assert row["milestone"] in MANIFEST["milestones"], id_
        assert 1 <= len(row["title"].split()) <= 12, id_


def test_every_founding_requirement_is_in_the_manifest() -> None:
    lengths = {"0": range(1, 87), "1": range(1, 62), "2": range(1, 35), "3": range(1, 45), "4": range(1, 54)}
    lengths |= {"B": range(19), "C": range(1, 23)}
    numbered = {f"{part}-{number:02}" for part, numbers in lengths.items() for number in numbers}
    maps = {"B-states", "B-methods", "B-errors"}
    assert {id_ for id_ in REQUIREMENTS if features_table.is_founding(id_)} == numbered | maps


def test_documented_locations_exist() -> None:
    stated = {id_: features_table.place(row["lives"]) for id_, row in REQUIREMENTS.items() if "lives" in row}
    assert {id_: path for id_, path in stated.items() if not (ROOT / path).exists()} == {}


def test_every_claimed_requirement_exists(claims: list[Claim]) -> None:
    unknown = [f"{claim.place} names {claim.id}" for claim in claims if claim.id not in REQUIREMENTS]
    assert not unknown, "not in tests/requirements.toml:\n" + "\n".join(unknown)


def test_every_claim_stands_on_a_test(claims: list[Claim]) -> None:
    assert [claim for claim in claims if not claim.is_test] == []


def test_only_unfinished_milestones_have_requirements_without_a_test(claims: list[Claim]) -> None:
    unproven = by_milestone(REQUIREMENTS.keys() - {claim.id for claim in claims})
    for milestone, ids in unproven.items():
        line = f"{milestone}: {len(ids)} without a test: {' '.join(ids)}"
        print(fill(line, width=110, break_on_hyphens=False))
    overdue = [f"{milestone}: {' '.join(unproven.get(milestone, []))}" for milestone in MANIFEST["finished"]]
    assert not unproven.keys() & set(MANIFEST["finished"]), "no test proves:\n" + "\n".join(overdue)


def test_the_page_of_features_is_current(claims: list[Claim]) -> None:
    written = features_table.PAGE.read_text(encoding="utf-8")
    assert written == features_table.page(claims), "run python -m docs.features_table"


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

    TABLE = [Row(name="first", proves=proves("row")), Row(proves=proves("nameless"))]
""")
PLACES = {
    "module": "",
    "function-1": "::test_one",
    "function-2": "::test_one",
    "param": "::test_one",
    "params": "::test_one",
    "class": "::TestMany",
    "alias": "::TestMany::test_two",
    "row": "::first",
    "nameless": "",
}

TYPESCRIPT = """
describe("a page", () => {
  // proves: 0-14, 0-49
  it("shows it", () => {});
  // proves: 0-15 is what this does not say
  it("shows nothing", () => {});
});
"""


def test_the_scanner_finds_marks_wherever_they_stand(tmp_path: Path) -> None:
    deep, golden, pages = tmp_path / "tests" / "deep", tmp_path / "tests" / "golden" / "v1", tmp_path / "web" / "src"
    for folder in (deep, golden, pages):
        folder.mkdir(parents=True)
    (deep / "test_synthetic.py").write_text(SYNTHETIC)
    (deep / "conftest.py").write_text("")
    (golden / "x.json").write_text('[{"note": "none"}, {"proves": ["golden"]}]')
    (pages / "page.test.tsx").write_text(TYPESCRIPT)
    assert set(claims_under(tmp_path)) == {
        *(Claim(id, f"tests/deep/test_synthetic.py{place}") for id, place in PLACES.items()),
        Claim("golden", "tests/golden/v1/x.json[1]"),
        Claim("0-14", "web/src/page.test.tsx::shows it"),
        Claim("0-49", "web/src/page.test.tsx::shows it"),
    }


def test_claims_of_tests_that_do_not_run_do_not_count() -> None:
    marked = "@pytest.mark.proves('x')\ndef {name}(): ..."
    for file, name, is_test in (
        ("tests/test_a.py", "test_b", True),
        ("tests/test_a.py", "helper", False),
        ("tests/conftest.py", "test_b", False),
    ):
        (claim,) = claims_in(marked.format(name=name), file)
        assert claim.is_test is is_test
    (mark,) = claims_in("pytestmark = pytest.mark.proves('x')", "tests/test_a.py")
    assert mark.is_test
    assert list(claims_in_typescript("it('nothing')", "a.test.ts")) == []


@pytest.mark.parametrize("hidden", ["*IDS", "NAME", "f'{x}'", "1"])
def test_the_scanner_refuses_ids_that_it_cannot_read(hidden: str) -> None:
    with pytest.raises(ValueError, match=r"^t\.py:1: write the id"):
        list(claims_in(f"pytestmark = pytest.mark.proves({hidden})", "t.py"))


def test_ids_are_grouped_by_milestone() -> None:
    assert by_milestone(["C-17", "2-27", "2-22"]) == {"protocol": ["2-22", "2-27"], "workflows": ["C-17"]}
    assert by_milestone([]) == {}
