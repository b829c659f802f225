"""The comparison with others: every cell of the table of probes is what the probe finds, with the versions it names."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.environments import ROOT
from tests.guides import probes
from tests.guides.surroundings import serving
from tests.guides.tables import table
from tests.serve.running import Server

PAGE = ROOT / "docs" / "explanation" / "comparison.md"


@contextmanager
def ours(folder: Path) -> Iterator[str]:
    store = f"sqlite:///{folder}/accord.db"
    target = "tests.guides.probed.counting:count"
    server = Server(folder, target, "--store", store, ACCORD_ENGINE__LEASE_SECONDS="1")
    try:
        yield server.url
    finally:
        server.kill()


SERVERS: dict[str, Callable[[Path], probes.Serve]] = {
    "accord": lambda folder: partial(ours, folder),
    "a2a-sdk": lambda folder: partial(serving, "tests.guides.probed.a2a_sdk_server", folder),
    "a2a-sdk, everything": lambda folder: partial(
        serving, "tests.guides.probed.a2a_sdk_server", folder, EVERYTHING="1"
    ),
    "fasta2a": lambda folder: partial(serving, "tests.guides.probed.fasta2a_server", folder),
}


@pytest.mark.parametrize(("column", "name"), list(enumerate(SERVERS, 1)), ids=list(SERVERS))
def test_the_page_s_claims_are_true(column: int, name: str, tmp_path: Path) -> None:
    said = {row[0]: row[column] for row in table(PAGE, "Probes")}
    serve = SERVERS[name](tmp_path)
    with probes.killed(serve) as (left, url):
        found = {probes.KILLED: left} | {probe: ask(url) for probe, ask in probes.ALIVE.items()}
    assert found == said, json.dumps(found, indent=1)


@pytest.mark.parametrize("package", ["a2a-sdk", "fasta2a"])
def test_the_page_names_the_versions_that_were_probed(package: str) -> None:
    assert f"{package} {version(package)}" in PAGE.read_text(encoding="utf-8")
