"""Every golden case, both ways: the shapes of each dialect are exactly these."""

from accord.errors import AccordError
from tests.cases import each
from tests.protocol import golden

CASES = list(golden.cases())
READ = [(name, case) for name, _, case in CASES if case.direction in ("both", "in")]
WRITTEN = [(name, case) for name, _, case in CASES if case.direction in ("both", "out")]


@each(("dialect", "case"), READ)
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


@each(("dialect", "case"), WRITTEN)
def test_model_is_written_as_the_wire(dialect: str, case: golden.Case) -> None:
    assert golden.written(golden.CODECS[dialect], case) == case.wire


@each("dialect", golden.CODECS)
@each("kind", ["request", "result", "event", "error", "push", "card"])
def test_every_dialect_has_cases_of_every_kind(dialect: str, kind: str) -> None:
    assert any(case.kind == kind for name, _, case in CASES if name == dialect)
