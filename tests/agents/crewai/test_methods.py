"""What a flow's methods give, as it is kept: only what is the same when it is read again."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from accord.agents.crewai.flows import _restored_value, _stored_value, stored_state
from tests.cases import each


class City(BaseModel):
    name: str
    people: int = 0


def local() -> Any:
    class Here(BaseModel):
        id: str = "1"

    return Here()


@each("value", ["text", 7, 1.5, None, True, ["a", {"b": [1]}], {"a": None}, City(name="Rome")])
def test_readable_results_are_stored(value: Any) -> None:
    written = _stored_value(value)
    assert written is not None
    assert _restored_value(written) == value
    assert type(_restored_value(written)) is type(value)


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, datetime.now(UTC), object(), local(), [City(name="Rome")], b"x"])
def test_results_that_change_when_read_are_not_stored(value: Any) -> None:
    assert _stored_value(value) is None


def test_states_of_any_class_are_stored() -> None:
    assert stored_state(local()) == {"id": "1"}, "which flows make for themselves"
    assert stored_state({"id": "1", "said": ["a"]}) == {"id": "1", "said": ["a"]}
    assert stored_state({"id": "1", "city": City(name="Rome")}) is None
    assert stored_state("no state") is None
