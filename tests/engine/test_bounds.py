"""How large and deep a request may be: at each limit it passes, beyond it is refused with the field's name."""

from typing import Any

import pytest
from msgspec.structs import replace

from accord.auth.rate_limits import Quotas
from accord.errors import RequestTooLarge, Violation
from accord.model import Authentication, CancelRequest, Part, PushConfig, SendConfiguration, SendRequest
from accord.protocol.operations import Operation
from accord.service.middleware import RequestSizes
from tests.cases import each
from tests.engine.conftest import saying

SMALL = Quotas(parts=3, text=100, metadata=60, depth=4, identifier=8, webhook_field=20)
CHECKS = RequestSizes(SMALL).checks


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def part(**fields: Any) -> SendRequest:
    return saying("", "m", parts=(Part(text="first"), Part(**fields)))


def message(**fields: Any) -> SendRequest:
    request = saying("x", "m")
    return replace(request, message=replace(request.message, **fields))


def hook(**fields: Any) -> PushConfig:
    return PushConfig(**({"url": "https://a.b"} | fields))


def asking(config: PushConfig) -> SendRequest:
    return saying("x", "m", configuration=SendConfiguration(task_push_notification_config=config))


SENT = [
    ("message.messageId", lambda n: saying("x", "i" * n), 8),
    ("message.contextId", lambda n: message(context_id="i" * n), 8),
    ("message.contextId", lambda n: message(context_id="é" * (n // 2) + "x" * (n % 2)), 8),
    ("message.parts", lambda n: message(parts=(Part(text="x"),) * n), 3),
    ("message.extensions", lambda n: message(extensions=("x",) * n), 3),
    ("message.referenceTaskIds", lambda n: message(reference_task_ids=("x",) * n), 3),
    ("message.parts[1]", lambda n: part(text="é" * n), 100),
    ("message.parts[1]", lambda n: part(url="u" * n), 100),
    ("message.parts[1].data", lambda n: part(data="x" * (n - 2)), 100),
    ("message.parts[1].data", lambda n: part(data=nested(n)), 4),
    ("message.parts[1].metadata", lambda n: part(text="x", metadata={"k": "x" * (n - 8)}), 60),
    ("message.metadata", lambda n: message(metadata={"k": "x" * (n - 8)}), 60),
    ("message.metadata", lambda n: message(metadata={"k": nested(n - 1)}), 4),
    ("metadata", lambda n: saying("x", "m", metadata={"k": "x" * (n - 8)}), 60),
    ("metadata", lambda n: saying("x", "m", metadata={"k": nested(n - 1)}), 4),
    (
        "configuration.acceptedOutputModes",
        lambda n: saying("x", "m", configuration=SendConfiguration(accepted_output_modes=("x",) * n)),
        3,
    ),
    ("configuration.taskPushNotificationConfig.url", lambda n: asking(hook(url="u" * n)), 20),
]
HOOKS = [
    ("id", lambda n: hook(id="i" * n), 8),
    ("url", lambda n: hook(url="u" * n), 20),
    ("token", lambda n: hook(token="t" * n), 20),
    ("events", lambda n: hook(events=("x",) * n), 3),
    ("authentication.scheme", lambda n: hook(authentication=Authentication(scheme="s" * n)), 20),
    (
        "authentication.credentials",
        lambda n: hook(authentication=Authentication(scheme="s", credentials="c" * n)),
        20,
    ),
]
CANCELS = [
    ("metadata", lambda n: CancelRequest(id="t", metadata={"k": "x" * (n - 8)}), 60),
    ("metadata", lambda n: CancelRequest(id="t", metadata={"k": nested(n - 1)}), 4),
]
CASES = [
    (operation, *case)
    for operations, cases in (
        ((Operation.SEND, Operation.STREAM), SENT),
        ((Operation.PUSH_SET,), HOOKS),
        ((Operation.CANCEL,), CANCELS),
    )
    for operation in operations
    for case in cases
]


@each(("operation", "field", "make", "limit"), CASES)
def test_values_beyond_a_limit_are_named(operation: Operation, field: str, make: Any, limit: int) -> None:
    CHECKS[operation](make(limit))
    with pytest.raises(RequestTooLarge) as refused:
        CHECKS[operation](make(limit + 1))
    ((named, reason),) = refused.value.violations
    assert (named, f"`{field}`: {reason}") == (field, refused.value.message)
    assert any(str(n) in reason for n in (limit, SMALL.depth))


def test_no_depth_hurts() -> None:
    deep = nested(200_000)
    with pytest.raises(RequestTooLarge) as refused:
        RequestSizes(Quotas()).checks[Operation.SEND](part(data=deep))
    assert refused.value.violations == (Violation("message.parts[1].data", "Nested more deeply than 100 levels"),)
    while isinstance(deep, list) and deep:  # taken apart here: doing so all at once would be recursion as well
        deep = deep.pop()


def test_brackets_in_text_are_not_nesting() -> None:
    CHECKS[Operation.SEND](part(data="[" * 50))
    CHECKS[Operation.SEND](part(data=[[1], [2], [3], [4], [5], [6]]))


def test_ordinary_requests_pass_with_the_default_limits() -> None:
    checks = RequestSizes(Quotas()).checks
    text = "word " * 500_000
    checks[Operation.SEND](saying(text, metadata={"task_config": {"timeout": 1000, "priority": "high"}}))
    checks[Operation.SEND](part(data={"rows": [{"a": 1, "b": [1, 2, 3]}] * 10_000}))
    checks[Operation.SEND](part(raw=b"x" * 10_000_000, filename="x.bin"))
