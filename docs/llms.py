"""Writes `llms.txt`, the index of the documentation for language models: a line for each page of the navigation.

A page's line is its title and its first sentence, so it is mended in the page. `make docs` runs this file, and a test
that what it writes is what is there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # it ships no types

DOCS = Path(__file__).resolve().parent
FILE = DOCS / "llms.txt"
LONGEST = 220
"""Characters of a line's sentence."""

HEAD = """# Accord

> A durable home for agents that talk to each other over A2A (Agent2Agent): one Python package that serves any agent,
> calls any agent, runs workflows across them and shows it all live.

Coding agents: `skills/accord/SKILL.md` of the repository says how to drive the command line.
"""


SAID = {
    "agents/README.md": "What `accord serve` makes an agent of, the settings of agents, and kinds of your own.",
    "agents/function.md": "Async generators, coroutines and plain functions as agents.",
    "agents/http.md": "n8n, or anything that answers over HTTP at once, in a stream or later, as an agent.",
    "architecture.md": "The layers, the tables and how requests, tasks, agents and workflows travel, on one page.",
    "features.md": "Every required feature with the tests that prove it.",
    "how-to/command-line.md": "Calling agents with `accord`: what is printed, exit codes, files.",
    "how-to/remote.md": "Any A2A agent elsewhere served here as a durable one, and the webhooks that it calls.",
    "reference/cli.md": "Every command with its arguments and options.",
    "reference/configuration.md": "Every setting with its type, default and variable.",
    "reference/dialects.md": "The five dialects and three bindings, with requests and answers in each.",
    "reference/errors.md": "Every error with its code in each dialect and binding.",
    "reference/server.md": "What is served where, settings, TLS, several processes, mounting in another application.",
    "workflows/reference.md": "Every key of a workflow file, and its JSON Schema.",
    "workflows/running.md": "`accord run` and `accord runs`: running, answering, resuming and cancelling, exit codes.",
}
"""What is said of pages whose first sentence says too little."""


PASSED_OVER = ("Checked with", "This page is written by")
"""How sentences begin that say how a page came to be."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml ships no types
    """Reads mkdocs.yml without making the functions that it names."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def made() -> str:
    """Return the index."""
    settings = yaml.load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    return HEAD + "".join(_lines(settings["nav"]))


def _lines(entries: list[Any], within: str = "") -> Iterator[str]:
    """Yield headings and pages; there is one level of headings, so a group in another is called after both."""
    for entry in entries:
        name, inside = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(inside, list):
            if not all(map(_is_group, inside)):
                yield f"\n## {within}{name}\n\n"
            yield from _lines(inside, f"{within}{name}: ")
        elif inside != "index.md":
            yield described(inside)


def _is_group(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(next(iter(entry.values())), list)


def described(page: str) -> str:
    """Return the line of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.M)
    said = SAID.get(page) or _first_sentence(text)
    short = said if len(said) <= LONGEST else said[:LONGEST].rsplit(" ", 1)[0] + " ..."
    return f"- [{title[1].replace('`', '') if title else page}]({page}){': ' if short else ''}{short}\n"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a page that says what it is about, not how it came to be."""
    prose = re.sub(r"^(```.*?^```|<.*?>|[#|].*?)$", "", text, flags=re.M | re.S)
    paragraph = next((part for part in re.split(r"\n\s*\n", prose) if re.match(r"\s*[A-Z`*\[]", part)), "")
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split()))
    sentences = re.split(r"(?<=\.) (?=[A-Z`])", plain.removeprefix("**Context.** "))
    return next((one for one in sentences if not one.startswith(PASSED_OVER)), "").rstrip(":")


if __name__ == "__main__":
    FILE.write_text(made(), encoding="utf-8")
