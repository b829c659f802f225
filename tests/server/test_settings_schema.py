"""The schema knows every setting, says what it means, takes what is read and refuses what is not."""

import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Struct, inspect

from accord.api.agent_types import Options
from accord.model.schemas import field_descriptions, struct_description
from accord.server.settings import Settings
from accord.server.settings_loader import settings_of
from accord.server.settings_schema import (
    all_agent_types,
    own_agent_types,
    schema_document,
    settings_schema,
)
from tests.doc_blocks import ROOT, Block, blocks, pages

STARTER = resources.files("accord.cli").joinpath("starter", "accord.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def judge() -> jsonschema_rs.Draft7Validator:
    made = settings_schema(own_agent_types())
    jsonschema_rs.meta.validate(made)
    return jsonschema_rs.Draft7Validator(made)


def structs(kind: inspect.Type) -> Iterator[type[Struct]]:
    """Every struct below a type."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            yield cls
            for field in fields:
                yield from structs(field.type)
        case inspect.UnionType(types=kinds):
            for one in kinds:
                yield from structs(one)
        case inspect.VarTupleType(item_type=item) | inspect.DictType(value_type=item) | inspect.Metadata(type=item):
            yield from structs(item)


ALL = list(dict.fromkeys([*structs(inspect.type_info(Settings)), Options]))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_setting_has_a_description(kind: type[Struct]) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    silent = [
        field.name
        for field in info.fields
        if not field_descriptions(kind).get(field.name) and not isinstance(field.type, inspect.StructType)
    ]
    assert silent == []
    assert struct_description(kind).endswith(".")


def test_a_meaning_is_the_string_below_a_field() -> None:
    assert field_descriptions(Sub) == {
        "first": "The first, in two lines.",
        "second": "The second.",
        "third": "Its own.",
    }


class Base(Struct):
    """A struct."""

    first: int
    """The first,
    in two lines."""

    third: int = 3
    """Another's."""


class Sub(Base):
    """A struct."""

    second: int = 1
    """The second."""

    third: int = 4
    """Its own."""

    silent: int = 0


# --- what it takes ----------------------------------------------------------------------------------------------------


def test_it_takes_the_starter(judge: jsonschema_rs.Draft7Validator) -> None:
    judge.validate(tomllib.loads(STARTER))


def uncommented(text: str) -> str:
    """The starter with everything set that it shows; what would be set twice is what its comment says."""
    shown = re.sub(r"^# (\[.*\]|\w+ = .*)$", r"\1", text, flags=re.MULTILINE)
    twice = [name for name in ("store", "host") if len(re.findall(rf"^{name} = ", shown, re.MULTILINE)) == 2]
    assert twice == ["store", "host"]
    for name in twice:
        shown = re.sub(rf"^{name} = .*\n", "", shown, count=1, flags=re.MULTILINE)
    return shown


def test_commented_starter_settings_are_valid(judge: jsonschema_rs.Draft7Validator) -> None:
    shown = tomllib.loads(uncommented(STARTER))
    assert {"store", "blobs", "agents", "server", "auth", "push", "remotes", "card"} <= set(shown)
    judge.validate(shown)
    env = {"DATABASE_URL": "postgresql://db/accord", "WEBHOOK_KEY": "k" * 32, "WEATHER_TOKEN": "t"}
    assert settings_of(shown, "starter", env).server.host == "0.0.0.0"


def without_strangers(stated: dict[str, Any]) -> dict[str, Any]:
    """Settings without the agents of other packages' kinds, which a published schema cannot know."""
    known = {kind.name for kind in own_agent_types()}
    agents = {
        name: one
        for name, one in stated.get("agents", {}).items()
        if not isinstance(one, dict) or one.get("type", "function") in known
    }
    return stated | {"agents": agents}


def written() -> Iterator[Any]:
    for page in pages():
        for block in blocks(page):
            if block.language == "toml" and (stated := settings_in(block)) is not None:
                yield pytest.param(stated, id=str(block))


def settings_in(block: Block) -> dict[str, Any] | None:
    """The settings that a block shows, if it shows some."""
    stated = tomllib.loads(block.text)
    if "accord" in stated.get("tool", {}):
        return without_strangers(stated["tool"]["accord"])
    is_other = block.title is not None and Path(block.title).name != "accord.toml"
    return None if is_other or block.untested else without_strangers(stated)


@pytest.mark.parametrize("stated", list(written()))
def test_it_takes_every_setting_of_the_documentation(
    judge: jsonschema_rs.Draft7Validator, stated: dict[str, Any]
) -> None:
    judge.validate(stated)


EXAMPLES = [file for file in sorted((ROOT / "examples").rglob("*.toml")) if file.name != "pyproject.toml"]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_it_takes_every_example(judge: jsonschema_rs.Draft7Validator, file: Path) -> None:
    judge.validate(without_strangers(tomllib.loads(file.read_text(encoding="utf-8"))))


TAKEN = [
    'audit = "env:HOW"',
    '[server]\nport = "env:PORT"\nbehind_proxy = "env:PROXY"',
    'agents = { a = "m:a", b = { target = "m:b", timeout = 3 } }',
    '[agents.x]\ntype = "http"\nurl = "https://x.example"',
    "[limits]\nrate = 0",
    '[[auth.schemes]]\ntype = "basic"\nusers.bob = { password = "x" }',
    '[remotes.a]\nurl = "https://a.example"\nheaders = { X = "1" }',
]

REFUSED = [
    'stroe = "x"',
    "[server]\nprot = 1",
    "[engine]\nlease = 1",
    "[limits]\nstreems = 1",
    "[card.provider]\norganization = 'x'",
    "[server]\nport = 0",
    "[server]\nport = 65536",
    "[server]\nport = 'x'",
    "[server]\ndialects = []",
    "[server]\ndialects = ['v9']",
    "keep_days = -1",
    "audit = 'writs'",
    "[[auth.schemes]]\ntype = 'api-kes'",
    "[[auth.schemes]]\ntype = 'api-keys'\nhedaer = 'X'",
    "[[auth.roles]]\nname = 'x'\nskils = []",
    "[remotes.a]\nmode = 'poll'",
    "[agents.x]\ntype = 'htp'",
    "[agents.x]\ntype = 'http'\nurll = 'x'",
    "[agents.x]\ntype = 'http'\nurl = 'x'\ntarget = 'm:x'",
    "[agents.x]\ntarget = 'm:x'\ntimeot = 1",
    "[agents]\nx = 1",
    "agents = 'm:a'",
]


@pytest.mark.parametrize("text", TAKEN)
def test_valid_settings_match_the_schema(judge: jsonschema_rs.Draft7Validator, text: str) -> None:
    stated = tomllib.loads(text)
    judge.validate(stated)
    settings_of(stated, "test", {"HOW": "all", "PORT": "1", "PROXY": "true"})


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_settings_do_not_match_the_schema(judge: jsonschema_rs.Draft7Validator, text: str) -> None:
    assert not judge.is_valid(tomllib.loads(text))


def test_every_group_refuses_names_that_it_does_not_have() -> None:
    made = settings_schema(own_agent_types())
    groups = {name: one for name, one in made["definitions"].items() if one["type"] == "object"}
    assert len(groups) > 30
    assert [name for name, one in groups.items() if one.get("additionalProperties") is not False] == []
    assert made["additionalProperties"] is False


def test_the_schema_lists_installed_agent_types() -> None:
    assert {kind.name for kind in own_agent_types()} <= {kind.name for kind in all_agent_types()}
    assert schema_document(own_agent_types()).startswith('{\n  "$schema": "http://json-schema.org/draft-07/schema#"')
