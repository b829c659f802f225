"""What the documentation says is what the code says: its drawings, its tables, and every code block (`doc_blocks`)."""

import re
import tomllib
from pathlib import Path

import pytest

from accord.auth.rate_limits import Quotas
from accord.auth.roles import BUILT_IN
from accord.protocol.lifecycle import ENDED, TRANSITIONS
from accord.server.application import Application
from accord.testing import call, lifespan
from tests import doc_blocks
from tests.doc_blocks import Block, Unbound

ARCHITECTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


def test_the_readme_fits_a_screen() -> None:
    readme = (doc_blocks.ROOT / "README.md").read_text(encoding="utf-8")
    shown = [line for line in readme.splitlines() if line.strip() and not line.lstrip().startswith(("```", "<"))]
    assert len(shown) <= 45


def test_the_diagram_of_states_is_the_transition_table() -> None:
    drawn = re.findall(r"^ {4}(\w+) --> (\w+)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    stated = {
        (before.name, after.name)
        for before, followers in TRANSITIONS.items()
        for after in followers
        if after not in ENDED and before is not after
    }
    assert set(drawn) == stated
    assert len(drawn) == len(stated)


def test_the_drawing_of_layers_is_the_contract() -> None:
    drawing = re.search(r"```text\n(cli .*?)```", ARCHITECTURE.read_text(encoding="utf-8"), re.DOTALL)
    project = tomllib.loads((doc_blocks.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = next(one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    assert drawing is not None
    drawn = [re.split(r" {2,}", line)[0] for line in drawing[1].splitlines()]
    assert drawn == [re.sub(r"[()]", "", layer) for layer in layers if "__main__" not in layer]


def test_the_documentation_names_every_limit_and_every_role() -> None:
    written = (ARCHITECTURE.parent / "reference" / "limits.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in written.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*Quotas.__struct_fields__, *(role.name for role in BUILT_IN)}


async def test_the_mounted_example_serves_its_agent_below_its_path() -> None:
    from examples.mounted import agents, app

    assert isinstance(agents, Application)
    async with lifespan(app):
        path, host = "/booking/.well-known/agent-card.json", {"host": "shop.example"}
        card = (await call(app, method="GET", path=path, headers=host)).json()
        assert (await call(app, method="GET")).json()["card"] == "/booking/.well-known/agent-card.json"
    assert card["name"] == "booking"
    assert card["supportedInterfaces"][0]["url"] == "http://shop.example/booking/"


BLOCKS = [block for page in doc_blocks.pages() for block in doc_blocks.blocks(page)]
UNTESTED = 6
"""How many blocks may say why nothing checks them (`<!-- untested: why -->` above)."""


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS}))
def test_every_code_block_is_held_to_the_code(page: str) -> None:
    wrong: list[str] = []
    for block in BLOCKS:
        if block.page == page and block.untested is None:
            try:
                doc_blocks.check(block)
            except (Unbound, ValueError) as error:
                wrong.append(f"{block}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", doc_blocks.pages(), ids=lambda page: page.relative_to(doc_blocks.ROOT).as_posix())
def test_every_command_that_a_text_mentions_is_there(page: Path) -> None:
    for words in doc_blocks.mentioned(page):
        doc_blocks.mention(words)


@pytest.mark.parametrize(
    "words", [["sned"], ["task", "gte"], ["serve", "--prot", "9"], ["runs", "list", "-x"]], ids=" ".join
)
def test_a_mention_that_is_wrong_is_noticed(words: list[str]) -> None:
    with pytest.raises(Unbound, match=words[0]):
        doc_blocks.mention(words)


def test_untested_blocks_are_few_and_have_a_reason() -> None:
    reasons = {str(block): block.untested for block in BLOCKS if block.untested is not None}
    assert len(reasons) <= UNTESTED, reasons
    assert all(len(reason.split()) > 3 for reason in reasons.values()), reasons


@pytest.mark.parametrize(
    ("language", "text", "reason"),
    [
        ("python", "nobody.has_written(this)", "no example"),
        ("toml", "[server]\nprot = 9", "port"),
        ("toml", "[agents.x]\ntype = 'process'\ncomand = 'wc'", "command"),
        ("yaml", "workflows: []\nsteps: 3", "name"),
        ("yaml", "- { name: a, type: wait, evnt: b }\n", "event"),
        ("sh", "accord serve --prot 9", "--prot"),
        ("sh", "A=1 accord sned x | accord card get y", "sned"),
        ("sh", "cd x && sudo -E -u me /opt/bin/accord db sattus > file 2>&1", "sattus"),
        ("console", "$ make nothing\nmake: no such target", "nothing"),
        ("sh", "python examples/gone.py", "gone.py"),
        ("sh", "pip install 'accord[gone]'", "gone"),
        ("sh", "curl -s http://localhost:8000", "no test"),
        ("json", "{1: 2}", "property name"),
        ("text", "accord serve", "say sh"),
        ("ruby", "puts 1", "nothing checks"),
    ],
)
def test_a_block_that_is_wrong_is_noticed(language: str, text: str, reason: str) -> None:
    with pytest.raises((Unbound, ValueError), match=reason):
        doc_blocks.check(Block("page.md", 1, language, None, text))


def test_an_excerpt_is_whole_lines_in_their_order() -> None:
    example = (doc_blocks.ROOT / "examples" / "booking.py").read_text(encoding="utf-8")
    for text, is_one in {
        "async def booking(ctx: Context):\n# ...\nreturn 1 + len(day) % 20": True,
        "return 1 + len(day) % 20\n# ...\nasync def booking(ctx: Context):": False,
        "async def booking(ctx": False,
    }.items():
        assert doc_blocks.is_excerpt(text, example) is is_one


def test_every_test_that_a_page_names_is_there() -> None:
    named = {
        (page.name, name)
        for page in doc_blocks.pages()
        for name in re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8"))
    }
    tests = {
        name
        for path in doc_blocks.ROOT.glob("tests/**/*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }
    assert [f"{page}: {name}" for page, name in sorted(named) if name not in tests] == []
    assert len(named) > 10
