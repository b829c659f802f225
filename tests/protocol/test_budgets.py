"""Budgets and what is used of them: sums, the tighter of two, what a message states, and where everybody sees it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.model import Event, GetRequest, Message, Part, Role, SendRequest, StatusUpdate, Task, TaskState, TaskStatus
from accord.protocol import lifecycle
from accord.protocol.budgets import Budget, BudgetAccount, TokenUsage, budget_metadata, read_budget, read_budget_request
from accord.protocol.operations import Operation
from tests.protocol.golden import CODECS

uses = st.builds(
    TokenUsage,
    input_tokens=st.integers(0, 10**9),
    output_tokens=st.integers(0, 10**9),
    cost=st.integers(0, 10**9).map(lambda millionths: millionths / 10**6),
)
budgets = st.builds(
    Budget, max_tokens=st.none() | st.integers(0, 10**9), max_cost=st.none() | st.floats(0, 10**6, allow_nan=False)
)


@given(found=st.lists(st.tuples(uses, st.none() | st.sampled_from(["small", "large"]))))
def test_an_account_is_the_sum_of_its_uses_in_any_order(found: list[tuple[TokenUsage, str | None]]) -> None:
    forth, back = BudgetAccount(), BudgetAccount()
    for use, model in found:
        forth = forth.charged(use, model)
    for use, model in reversed(found):
        back = back.charged(use, model)
    assert forth.used.tokens == back.used.tokens == sum(use.tokens for use, _ in found)
    assert forth.used.cost == pytest.approx(sum(use.cost for use, _ in found))
    assert forth.models.keys() == {model for _, model in found if model is not None}
    assert msgspec.json.decode(msgspec.json.encode(forth), type=BudgetAccount) == forth


@given(one=budgets, other=budgets, used=uses)
def test_the_tighter_of_two_budgets_is_over_when_either_is(one: Budget, other: Budget, used: TokenUsage) -> None:
    both = one.tightened(other)
    assert both == other.tightened(one)
    assert (both.over(used) is None) == (one.over(used) is None and other.over(used) is None)
    assert both.tightened(one) == both


@given(budget=budgets, used=uses)
def test_the_remaining_budget_is_the_limit(budget: Budget, used: TokenUsage) -> None:
    left = budget.left(used)
    if left.max_tokens is not None and budget.over(used) is None:
        assert budget.over(used.and_(TokenUsage(input_tokens=left.max_tokens))) is None
        assert budget.over(used.and_(TokenUsage(input_tokens=left.max_tokens + 1))) is not None
    assert read_budget(budget_metadata(left)) == left


def test_a_cent_is_a_cent() -> None:
    account = BudgetAccount()
    for _ in range(10):
        account = account.charged(TokenUsage(cost=0.1), None)
    assert account.used.cost == 1.0
    assert Budget(max_cost=1).over(account.used) is None


def test_metadata_of_others_is_left_alone() -> None:
    assert read_budget_request(None) is None
    assert read_budget_request({"usage": 1}) is None
    assert read_budget({"other": {"maxTokens": 1}}) == Budget()


USED = BudgetAccount().charged(TokenUsage(input_tokens=7, output_tokens=5, cost=0.25), "small").shown


@pytest.mark.parametrize("name", CODECS)
def test_every_dialect_shows_usage(name: str) -> None:
    codec = CODECS[name]
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING), metadata={"usage": USED})
    shown = codec.decode_result(Operation.GET, codec.encode_result(Operation.GET, task), GetRequest(id="t"))
    assert isinstance(shown, Task)
    assert (shown.metadata or {})["usage"] == USED


@pytest.mark.parametrize("name", [name for name in CODECS if name != "vault"])  # whose status events have no metadata
def test_subscribers_get_usage(name: str) -> None:
    codec = CODECS[name]
    before = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))
    status = TaskStatus(state=TaskState.COMPLETED, timestamp="2026-01-01T00:00:00.000Z")
    update = StatusUpdate(task_id="t", context_id="c", status=status, metadata={"usage": USED})
    frame = codec.encode_event(Event(seq=1, body=update, at="2026-01-01T00:00:00.000Z"))
    assert frame is not None
    told = codec.decode_event(frame)
    assert isinstance(told, StatusUpdate)
    after = lifecycle.apply(before, msgspec.structs.replace(told, task_id="t"))
    assert (after.metadata or {})["usage"] == USED


@pytest.mark.parametrize("name", CODECS)
def test_every_dialect_brings_the_budget_of_a_message(name: str) -> None:
    codec = CODECS[name]
    metadata = {"budget": {"maxTokens": 5, "maxCost": 0.5, "deadline": 60}}
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="x"),), metadata=metadata)
    sent = codec.encode_request(Operation.SEND, SendRequest(message=message))
    read = codec.decode_request(Operation.SEND, sent)
    assert isinstance(read, SendRequest)
    found = read_budget_request(read.message.metadata)
    assert found is not None
    assert (found.budget, found.deadline_at(1000)) == (Budget(max_tokens=5, max_cost=0.5), 61_000)


def test_tasks_keep_the_latest_usage_and_other_metadata() -> None:
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING), metadata={"own": 1})

    def working(metadata: dict[str, object] | None) -> StatusUpdate:
        return StatusUpdate(task_id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING), metadata=metadata)

    task = lifecycle.apply(task, working({"usage": {"cost": 1}, "step": 2}))
    task = lifecycle.apply(task, working({"usage": "all of it"}))
    task = lifecycle.apply(task, working(None))
    assert task.metadata == {"own": 1, "usage": {"cost": 1}}
