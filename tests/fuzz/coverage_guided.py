"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz.coverage_guided CORPUS... -runs=N`."""

import sys

import atheris

with atheris.instrument_imports(include=["accord"]):
    from tests.fuzz.target import read


def one(data: bytes) -> None:
    if len(data) > 1:
        read(data[0] << 8 | data[1], data[2:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
