"""No input bytes can raise anything but our errors: random, mutated from good ones, and guided by coverage."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.target import READERS, read_everywhere
from tests.protocol import golden
from tests.strategies import json_values

ROOT = Path(__file__).resolve().parent.parent.parent
WIRES = [json.dumps(case.wire).encode() for _, _, case in golden.cases()]
RUNS = 40_000


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    read_everywhere(data)


@settings(max_examples=40)
@given(st.sampled_from(WIRES), json_values, st.randoms(use_true_random=False))
def test_good_documents_with_one_value_replaced(wire: bytes, value: object, chance: random.Random) -> None:
    read_everywhere(json.dumps(_replaced(json.loads(wire), value, chance)).encode())


@settings(max_examples=30)
@given(st.sampled_from(WIRES), st.integers(0, 10_000), st.binary(min_size=1, max_size=4))
def test_good_documents_with_bytes_overwritten(wire: bytes, at: int, noise: bytes) -> None:
    at %= len(wire)
    read_everywhere(wire[:at] + noise + wire[at + len(noise) :])


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris has no wheel for this platform")
def test_guided_by_coverage(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for position, wire in enumerate(WIRES):
        (corpus / str(position)).write_bytes((position % len(READERS)).to_bytes(2, "big") + wire)
    command = [sys.executable, "-m", "tests.fuzz.coverage_guided", str(corpus)]
    bounds = [f"-runs={RUNS}", "-max_total_time=60", "-seed=7", "-max_len=4096", f"-artifact_prefix={tmp_path}/"]
    done = subprocess.run([*command, *bounds], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def _replaced(document: object, value: object, chance: random.Random) -> object:
    """Return the document with one value, anywhere in it, replaced."""
    if isinstance(document, dict) and document and chance.random() < 0.8:
        key = chance.choice(sorted(document))
        return document | {key: _replaced(document[key], value, chance)}
    if isinstance(document, list) and document and chance.random() < 0.8:
        at = chance.randrange(len(document))
        return [*document[:at], _replaced(document[at], value, chance), *document[at + 1 :]]
    return value
