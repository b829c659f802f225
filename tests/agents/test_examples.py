"""Examples of agents: each kind has one that its page names, and all are short enough to be read at once."""

from pathlib import Path

from accord.api.agent_types import AGENT_TYPES
from tests.cases import each

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted(file for file in (ROOT / "examples" / "agents").iterdir() if file.suffix in (".py", ".toml"))
WORKFLOWS = sorted((ROOT / "examples" / "workflows").glob("*.yaml"))

MAX_LINES = 60


@each("file", EXAMPLES)
def test_it_is_short(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@each("kind", sorted(AGENT_TYPES.ours))
def test_the_page_of_a_kind_names_its_example(kind: str) -> None:
    page = (ROOT / "docs" / "agents" / f"{kind.replace('-', '_')}.md").read_text(encoding="utf-8")
    assert any(f"../examples/{file.parent.name}/{file.name}" in page for file in (*EXAMPLES, *WORKFLOWS))
