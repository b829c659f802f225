"""What roles allow: the built-in ones as a table, own ones, several at once, patterns, and names nobody knows."""

import msgspec
import pytest

from accord.auth.roles import BUILT_IN, CROSSES, CallerRole, Roles, named_skills
from accord.protocol.operations import Operation
from tests.engine.conftest import saying

O = Operation  # noqa: E741 - a table of short rows
ALL = frozenset(Operation)

ALLOWED = {
    "admin": ALL,
    "operator": {O.GET, O.LIST, O.SUBSCRIBE, O.CANCEL, O.EXTENDED_CARD},
    "user": ALL,
    "caller": {O.SEND, O.STREAM, O.GET, O.CANCEL, O.SUBSCRIBE, O.EXTENDED_CARD},
    "reader": {O.GET, O.LIST, O.SUBSCRIBE, O.EXTENDED_CARD},
}
CROSSING = {"admin", "operator"}


def roles(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.proves("4-25")
@pytest.mark.parametrize("name", ALLOWED)
def test_the_built_in_roles_allow_exactly_this(name: str) -> None:
    rights = Roles().rights(roles(name), "echo")
    assert set(rights) == ALLOWED[name]
    crossing = {operation for operation, right in rights.items() if right.sees_all}
    assert crossing == (CROSSES & ALLOWED[name] if name in CROSSING else set())
    assert all(right.has_all_skills for right in rights.values())


def test_every_built_in_role_is_in_the_table() -> None:
    assert {role.name for role in BUILT_IN} == set(ALLOWED)


def test_roles_combine_as_a_union() -> None:
    rights = Roles().rights(roles("operator", "user"), "echo")
    assert set(rights) == ALL
    assert rights[O.GET].sees_all
    assert not rights[O.PUSH_SET].sees_all
    assert not rights[O.SEND].sees_all


def test_missing_roles_are_default_and_unknown_roles_nothing() -> None:
    assert set(Roles().rights(roles(), "echo")) == ALL
    assert set(Roles(default="reader").rights(roles(), "echo")) == ALLOWED["reader"]
    assert Roles(default=None).rights(roles(), "echo") == {}
    assert Roles().rights(roles("usr"), "echo") == {}
    assert set(Roles().rights(roles("offline_access", "reader"), "echo")) == ALLOWED["reader"]
    with pytest.raises(ValueError, match="no role 'nope'"):
        Roles(default="nope")


def test_own_roles_name_agents_and_skills_and_replace_built_in_ones() -> None:
    own = Roles(
        [
            CallerRole(name="support", agents=("help-*", "faq"), skills=("answer", "search.*")),
            CallerRole(name="user", operations=frozenset({O.GET})),
        ]
    )
    assert own.rights(roles("support"), "billing") == {}
    right = own.rights(roles("support"), "help-de")[O.SEND]
    assert not right.has_all_skills
    assert [name for name in ("answer", "answers", "search.web", "delete", ["answer"], 5) if right.has_skill(name)] == [
        "answer",
        "search.web",
    ]
    assert set(own.rights(roles("user"), "billing")) == {O.GET}
    both = own.rights(roles("support", "admin"), "faq")[O.SEND]
    assert both.has_all_skills


def test_roles_are_read_from_settings_and_misspelt_ones_refused() -> None:
    read = msgspec.convert({"name": "bot", "operations": ["SendMessage", "GetTask"], "agents": ["echo"]}, CallerRole)
    assert read == CallerRole(name="bot", operations=frozenset({O.SEND, O.GET}), agents=("echo",))
    for wrong in ({"name": "bot", "operations": ["Dance"]}, {"name": "bot", "skils": ["x"]}, {}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, CallerRole)


def test_names_of_strangers_are_not_remembered() -> None:
    known = Roles()
    for number in range(100):
        known.rights(roles(f"r-{number}", "reader"), "echo")
    assert len(known._known) == 1


@pytest.mark.parametrize("key", ["skill", "skillId", "skill_id"])
def test_the_skill_that_is_wanted_is_named_in_metadata(key: str) -> None:
    assert named_skills(saying("x", metadata={key: "plan"})) == ["plan"]
    request = saying("x", metadata={key: "plan"})
    message = msgspec.structs.replace(request.message, metadata={key: "book"})
    assert named_skills(msgspec.structs.replace(request, message=message)) == ["plan", "book"]
    assert named_skills(saying("x", metadata={key: 5})) == [5]
    assert named_skills(saying("x", metadata={key: None})) == []
    assert named_skills(saying("x")) == []
