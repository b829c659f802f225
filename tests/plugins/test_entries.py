"""One table for what is ours and what is not: names, clashes, and packages that are broken."""

import sys
from typing import Any

import pytest

from accord import entries
from accord.api.agent_types import AGENT_TYPES
from accord.auth.schemes import SCHEMES
from accord.entries import Group, NotRegistered, Unusable
from accord.storage.address import CARRIERS, open_store
from accord.storage.blobs import open_blobs
from accord.storage.blobs.blob_store import BLOBS
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import StoreRefused
from accord.workflows import StepExecutorType
from accord.workflows.executors import STEPS, executor_of, step_types
from accord.workflows.findings import BadDocument
from accord.workflows.source import read_document
from tests.plugins.conftest import Install

FAMILIES: list[Group[Any]] = [AGENT_TYPES, STEPS, SCHEMES, CARRIERS, BLOBS]
GOOD = (
    "from accord.workflows import Result, StepExecutorType\n"
    "async def do(scene): return Result(ok=True)\nSTEP = StepExecutorType(do=do)\n"
)


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_built_in_entries_load(family: Group[Any]) -> None:
    assert set(family.ours) <= set(family.names())
    for name in family.ours:
        assert name in family
        family.load(name)


def test_every_family_is_listed() -> None:
    assert list(entries.FAMILIES) == [family.name for family in FAMILIES]


def test_a_thing_of_another_package_goes_by_its_name(install: Install) -> None:
    install("acme-steps", GOOD, "accord.steps", "polish = acme_steps:STEP")
    assert "polish" in STEPS
    assert isinstance(STEPS.load("polish"), StepExecutorType)
    assert step_types()[-1] == "polish"
    assert callable(executor_of("polish"))
    (found,) = entries.installed_plugins(check=True)
    assert found[:5] == ("accord.steps", "polish", "acme_steps:STEP", "acme-steps", "1.0")
    assert found.problem is None


@pytest.mark.parametrize(
    ("source", "entry", "reason"),
    [
        ("raise RuntimeError('a mistake')", "polish = acme_steps:STEP", "RuntimeError: a mistake"),
        ("raise SystemExit(3)", "polish = acme_steps:STEP", "SystemExit: 3"),
        ("import nothing_like_this", "polish = acme_steps:STEP", "No module named 'nothing_like_this'"),
        (GOOD, "polish = acme_steps:STPE", "has no attribute 'STPE'"),
        ("STEP = 5", "polish = acme_steps:STEP", "it must be of type StepExecutorType, not int"),
    ],
)
def test_a_broken_one_is_named_with_its_package(install: Install, source: str, entry: str, reason: str) -> None:
    install("acme-steps", source, "accord.steps", entry)
    with pytest.raises(Unusable) as refused:
        STEPS.load("polish")
    assert str(refused.value).startswith(f"the package acme-steps 1.0 cannot be used (accord.steps: {entry}): ")
    assert reason in str(refused.value)
    (found,) = entries.installed_plugins(check=True)
    assert found.problem == str(refused.value)


@pytest.mark.parametrize("name", ["deterministic", "agent", "map"])
def test_a_name_of_ours_is_not_given_away(install: Install, name: str) -> None:
    install("acme-steps", GOOD, "accord.steps", f"{name} = acme_steps:STEP")
    (found,) = entries.installed_plugins(check=True)
    assert found.problem is not None
    assert "accord itself registers this step type" in found.problem
    assert (name in STEPS) is (name in STEPS.ours)
    assert step_types().count(name) == 1
    assert "acme_steps" not in sys.modules, "it was not even looked at"


def test_two_packages_with_one_name_are_both_refused(install: Install) -> None:
    install("acme-steps", GOOD, "accord.steps", "polish = acme_steps:STEP")
    install("other-steps", GOOD, "accord.steps", "polish = other_steps:STEP")
    with pytest.raises(Unusable, match=r"acme-steps 1\.0 .*: other-steps also registers this step type"):
        STEPS.load("polish")
    assert [one.problem is None for one in entries.installed_plugins(check=True)] == [False, False]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(NotRegistered, match="unknown authentication scheme 'basci'; did you mean 'basic'"):
        SCHEMES.load("basci")
    with pytest.raises(NotRegistered, match="there are az, dir, gs, s3"):
        BLOBS.load("zzz")


def test_a_step_of_an_unknown_type_is_refused_where_it_stands() -> None:
    with pytest.raises(BadDocument, match="did you mean deterministic"):
        read_document(
            "version: '1'\nname: x\nswarm: dag\nworkflows: [{name: x, steps: [{name: a, type: determinstic}]}]"
        )


async def test_carriers_are_not_mixed(install: Install) -> None:
    source = "from accord.api import CarrierType\nSIGNALS = CarrierType(make=lambda where, heard: None)\n"
    install("acme-hints", source, "accord.signals", "drums = acme_hints:SIGNALS", "bells = acme_hints:NONE")
    with pytest.raises(StoreRefused, match="by one kind of carrier, not by drums and nats and tls"):
        async with open_store("postgresql://localhost/x?signals=nats://a:1,tls://b:2,drums://c"):
            pass
    with pytest.raises(StoreRefused, match=r"Hints cannot be carried: the package acme-hints 1\.0"):
        async with open_store("postgresql://localhost/x?signals=bells://c"):
            pass


async def test_a_broken_place_for_large_parts_is_named(install: Install) -> None:
    install("acme-parts", "BLOBS = 5", "accord.blobs", "attic = acme_parts:BLOBS")
    with pytest.raises(StoreRefused, match=r"kept at attic://: the package acme-parts 1\.0"):
        open_blobs("attic:///x", SqliteStore(None), {})
