"""Identifiers: UUIDv7, unlike each other, in every thread and process."""

import os
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from accord.engine.ids import AT_ONCE, RANDOM_BYTES, new_id, uuid7


@given(st.integers(0, 2**48 - 1), st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES))
def test_it_is_the_uuid_of_its_time(milliseconds: int, random: bytes) -> None:
    made = uuid.UUID(uuid7(milliseconds, random))
    assert (made.version, made.variant, made.int >> 80) == (7, uuid.RFC_4122, milliseconds)
    assert made.int & (1 << 62) - 1 == int.from_bytes(random, "big") & (1 << 62) - 1


def test_no_two_threads_get_the_same() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [
            one for found in threads.map(lambda _: [new_id() for _ in range(AT_ONCE * 5)], range(8)) for one in found
        ]
    assert len(set(made)) == 8 * AT_ONCE * 5


def test_a_process_and_its_copy_do_not_make_the_same() -> None:
    new_id()  # so that some randomness is left over
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads, which the child does not need
        child = os.fork()
    if not child:
        os.write(writable, new_id()[19:].encode())
        os._exit(0)
    os.waitpid(child, 0)
    with os.fdopen(readable, "rb", closefd=True) as pipe:
        os.close(writable)
        assert pipe.read().decode() != new_id()[19:]
