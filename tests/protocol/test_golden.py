"""Every golden case, both ways: the shapes of each dialect are exactly these."""

import pytest

from accord.errors import AccordError
from tests.protocol import golden

CASES = list(golden.cases())
READ = [(name, case) for name, _, case in CASES if case.direction in ("both", "in")]
WRITTEN = [(name, case) for name, _, case in CASES if case.direction in ("both", "out")]


def _ids(wanted: tuple[str, str]) -> list[str]:
    return [label for _, label, case in CASES if case.direction in wanted]


@pytest.mark.parametrize(("dialect", "case"), READ, ids=_ids(("both", "in")))
def test_wire_is_read_as_the_model(dialect: str, case: golden.Case) -> None:
    found = golden.read(golden.CODECS[dialect], case)
    if isinstance(found, AccordError):
        stated = golden.build(case.model)
        assert type(found) is type(stated)
        assert (found.message, found.violations) == (stated.message, stated.violations)
        assert found.retry_after == stated.retry_after
        assert found.metadata.items() >= stated.metadata.items()
        return
    assert found == golden.build(case.model)


@pytest.mark.parametrize(("dialect", "case"), WRITTEN, ids=_ids(("both", "out")))
def test_model_is_written_as_the_wire(dialect: str, case: golden.Case) -> None:
    assert golden.written(golden.CODECS[dialect], case) == case.wire


@pytest.mark.parametrize("dialect", golden.CODECS)
@pytest.mark.parametrize("kind", ["request", "result", "event", "error", "push", "card"])
def test_every_dialect_has_cases_of_every_kind(dialect: str, kind: str) -> None:
    assert any(case.kind == kind for name, _, case in CASES if name == dialect)
