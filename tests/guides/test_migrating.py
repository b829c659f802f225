"""Migrations: what a server of another library says, the same agent says here, to the same client."""

import asyncio
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents.http.webhook import says, webhook
from tests.doc_blocks import blocks
from tests.environments import ROOT
from tests.guides.showing import Surroundings, play, serve_words, started
from tests.guides.surroundings import serving
from tests.serve.running import accord

PAGES = ROOT / "docs" / "migrating"
EXAMPLES = ROOT / "examples" / "migrating"


class Move(NamedTuple):
    """A page, the server before, and what is said to both."""

    page: str
    before: str
    said: tuple[str, ...]


MOVES = [
    Move("a2a-sdk", "examples.migrating.a2a_sdk_server", ("a table", "Friday")),
    Move("fasta2a", "examples.migrating.fasta2a_server", ("quiet please",)),
]


def talk(url: str, folder: Path, *said: str) -> list[str]:
    """Say one thing after the other to an agent; what follows a question answers it."""
    answers, task = [], None
    for text in said:
        done = accord(folder, "send", url, *(("--task-id", task) if task else ()), text, "-q")
        assert done.returncode == 0, done.stderr
        asked = re.search(r"--task-id (\S+)", done.stderr)
        task = asked[1] if asked else None
        answers.append(done.stdout.strip())
    return answers


@contextmanager
def after(page: str, folder: Path, **addresses: str) -> Iterator[str]:
    """Serve what a page has below After."""
    server = started(PAGES / f"{page}.md", folder, Surroundings(addresses, {"PYTHONPATH": str(ROOT)}))
    try:
        yield server.url
    finally:
        server.stop()


@pytest.mark.parametrize("move", MOVES, ids=[move.page for move in MOVES])
def test_migrated_agents_answer_the_same(move: Move, tmp_path: Path) -> None:
    with serving(move.before, tmp_path) as url:
        before = talk(url, tmp_path, *move.said)
    with after(move.page, tmp_path) as url:
        assert talk(url, tmp_path, *move.said) == before
    assert all(before)


async def test_flows_get_the_same_request_as_from_a2a_adapter(tmp_path: Path) -> None:
    question, shown = "where are my orders?", "http://localhost:5678/webhook/assistant"
    async with webhook(says([{"output": "two are on their way"}])) as flow:

        def both() -> list[list[str]]:
            with serving("examples.migrating.a2a_adapter_server", tmp_path, N8N_URL=flow.url) as url:
                before = talk(url, tmp_path, question)
            with after("a2a-adapter", tmp_path, **{shown: flow.url}) as url:
                return [before, talk(url, tmp_path, question)]

        answers = await asyncio.to_thread(both)
    assert answers == [["two are on their way"]] * 2
    before, now = (asked.json for asked in flow.asked)
    assert set(now["metadata"]) - set(before.get("metadata", {})) == {"task_id"}
    assert {key: now[key] for key in now if key != "metadata"} == {
        key: before[key] for key in before if key != "metadata"
    }


def test_the_graph_of_langgraph_json_is_served(tmp_path: Path) -> None:
    stated = json.loads((EXAMPLES / "langgraph.json").read_text(encoding="utf-8"))["graphs"]["trip"]
    file, _, name = stated.partition(":")
    settings = tomllib.loads((EXAMPLES / "langgraph.toml").read_text(encoding="utf-8"))
    module = ".".join((EXAMPLES / file).resolve().relative_to(ROOT).with_suffix("").parts)
    assert settings["agents"]["trip"]["target"] == f"{module}:{name}"
    with after("langgraph-api", tmp_path) as url:
        assert talk(url, tmp_path, "a trip", "yes")[-1].endswith("Booked.")


def test_the_function_that_takes_the_place_of_a_class(tmp_path: Path) -> None:
    page = PAGES / "python-a2a.md"
    assert serve_words(page) == ["examples/migrating/python_a2a_after.py:weather"]
    with after("python-a2a", tmp_path) as url:
        play(page, url, tmp_path)
        asked = accord(tmp_path, "send", url, "--data", "{}", "-q")
        assert (asked.returncode, asked.stdout.strip()) == (0, "Which city?"), asked.stderr


@pytest.mark.parametrize("page", sorted(PAGES.glob("*-*.md")), ids=lambda page: page.stem)
def test_a_page_shows_its_files_whole(page: Path) -> None:
    shown = [block for block in blocks(page) if block.title is not None]
    assert len(shown) >= 2, "before and after"
    for block in shown:
        assert block.text == (ROOT / str(block.title)).read_text(encoding="utf-8")
    assert any(str(block.title) in " ".join(serve_words(page)) for block in shown), "what is served is shown"
