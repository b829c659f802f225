"""What an agent says as text: all parts of all artifacts, data as JSON, and nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.client.text import Reply, StreamedText, text_of
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol import lifecycle
from tests.cases import each


def said(text: str, role: Role = Role.AGENT) -> Message:
    return Message(message_id="m", role=role, parts=(Part(text=text),), context_id="c")


def task(
    *artifacts: tuple[Part, ...],
    state: TaskState = TaskState.COMPLETED,
    message: str | None = None,
    history: tuple[Message, ...] = (),
) -> Task:
    made = tuple(Artifact(artifact_id=f"a-{at}", parts=parts) for at, parts in enumerate(artifacts))
    status = TaskStatus(state=state, message=None if message is None else said(message))
    return Task(id="t", context_id="c", status=status, artifacts=made, history=history)


ONE, TWO, DATA, FILE = Part(text="one "), Part(text="two"), Part(data={"n": [1]}), Part(raw=b"x", filename="x")

CASES: list[tuple[Task | Message, str]] = [
    (task((ONE, TWO)), "one two"),
    (task((ONE,), (TWO,)), "one \ntwo"),
    (task((ONE, DATA, TWO)), 'one \n{"n":[1]}\ntwo'),
    (task((DATA,)), '{"n":[1]}'),
    (task((DATA, DATA)), '{"n":[1]}\n{"n":[1]}'),
    (task((FILE, TWO), (FILE,)), "two"),
    (task(message="done"), "done"),
    (task((ONE,), message="one "), "one "),  # a finished task's message often repeats what was made
    (task((TWO,), state=TaskState.FAILED, message="out of luck"), "two\nout of luck"),
    (task((TWO,), state=TaskState.INPUT_REQUIRED, message="which?"), "two\nwhich?"),
    (task(history=(said("hi", Role.USER), said("all there is"))), "all there is"),
    (task(history=(said("hi", Role.USER),)), ""),
    (said("alone"), "alone"),
]


@each(("answer", "text"), CASES)
@pytest.mark.proves("C-07", "1-15")
def test_the_text_of_an_answer(answer: Task | Message, text: str) -> None:
    assert text_of(answer) == text


@pytest.mark.proves("1-11", "1-16", "C-07")
def test_replies_have_source_and_final_state() -> None:
    failed = task((TWO,), state=TaskState.FAILED, message="no")
    found = Reply.of(failed)
    assert (found.task_id, found.context_id, found.status, found.text) == ("t", "c", TaskState.FAILED, "two\nno")
    assert found.raw is failed
    assert found.has_failed
    assert not Reply.of(task((TWO,), state=TaskState.CANCELED)).has_failed
    assert Reply.of(task((TWO,), state=TaskState.AUTH_REQUIRED)).is_question
    alone = Reply.of(said("x"))
    assert (alone.task_id, alone.context_id, alone.status, alone.text) == (None, "c", TaskState.COMPLETED, "x")


# --- as it grows --------------------------------------------------------------------------------------------------


def update(artifact: str, *parts: Part, append: bool = True) -> ArtifactUpdate:
    made = Artifact(artifact_id=artifact, parts=parts)
    return ArtifactUpdate(task_id="t", context_id="c", artifact=made, append=append)


def turned(state: TaskState, text: str | None = None) -> StatusUpdate:
    status = TaskStatus(state=state, message=None if text is None else said(text))
    return StatusUpdate(task_id="t", context_id="c", status=status)


def grown(*bodies: EventBody) -> list[str]:
    growing = StreamedText()
    return [piece for body in bodies for piece in growing.add(body)]


WORKING = task(state=TaskState.WORKING)

STREAMS: list[tuple[tuple[EventBody, ...], list[str]]] = [
    ((WORKING, update("a", ONE, append=False), update("a", TWO), turned(TaskState.COMPLETED)), ["one ", "two"]),
    ((update("a", ONE), update("b", TWO)), ["one ", "\ntwo"]),
    ((update("a", ONE), update("b", TWO), update("a", TWO)), ["one ", "\ntwo", "\ntwo"]),
    # Each time the whole artifact, as some agents send it.
    ((update("a", ONE, append=False), update("a", Part(text="one two"), append=False)), ["one ", "two"]),
    ((update("a", ONE, append=False), update("a", ONE, TWO, append=False)), ["one ", "two"]),
    ((update("a", ONE, append=False), update("a", ONE, append=False)), ["one "]),
    ((update("a", ONE, append=False), update("a", Part(text="else"), append=False)), ["one ", "\nelse"]),
    # Made anew by an agent that was started again.
    (
        (update("a", ONE), update("a", TWO), update("a", ONE, append=False), update("a", TWO, TWO)),
        ["one ", "two", "two"],
    ),
    (
        (update("a", ONE), update("a", TWO), update("a", ONE, append=False), update("a", ONE)),
        ["one ", "two", "\none one "],
    ),
    # The task as it is after a gap.
    ((update("a-0", ONE), task((ONE, TWO))), ["one ", "two"]),
    ((update("a-0", ONE), task((ONE,), (TWO,))), ["one ", "\ntwo"]),
    # Progress is not the answer; a question and a reason are.
    ((turned(TaskState.WORKING, "thinking"), update("a", TWO)), ["two"]),
    ((update("a", TWO), turned(TaskState.INPUT_REQUIRED, "which?")), ["two", "\nwhich?"]),
    ((turned(TaskState.FAILED, "no"),), ["no"]),
    ((update("a", TWO), turned(TaskState.COMPLETED, "two")), ["two"]),
    ((said("alone"),), ["alone"]),
]


@each(("bodies", "pieces"), STREAMS)
@pytest.mark.proves("C-07")
def test_the_text_of_a_stream(bodies: tuple[EventBody, ...], pieces: list[str]) -> None:
    assert grown(*bodies) == pieces


PARTS = st.one_of(
    st.text("ab \n", max_size=4).map(lambda text: Part(text=text)),
    st.integers().map(lambda n: Part(data=n)),
    st.just(FILE),
)
ARTIFACTS = st.lists(st.lists(st.lists(PARTS, min_size=1, max_size=3), min_size=1, max_size=3), max_size=3)


@given(artifacts=ARTIFACTS, state=st.sampled_from([TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED]))
@pytest.mark.proves("C-07")
def test_all_pieces_together_are_the_text_of_the_task(artifacts: list[list[list[Part]]], state: TaskState) -> None:
    """Where artifacts come one after the other, in chunks, cut anywhere."""
    chunks = [update(f"a-{at}", *parts) for at, made in enumerate(artifacts) for parts in made]
    bodies: list[EventBody] = [*chunks, turned(state, "why")]
    ended = lifecycle.fold(WORKING, [Event(seq=at, body=body) for at, body in enumerate(bodies)])
    growing = StreamedText()
    pieces = [piece for body in bodies for piece in growing.add(body)]
    pieces += growing.end(ended)
    assert "".join(pieces) == text_of(ended)
    for cut in range(len(bodies)):
        before = lifecycle.fold(WORKING, [Event(seq=at, body=body) for at, body in enumerate(bodies[:cut])])
        again = StreamedText()
        told = [piece for body in (before, *bodies[cut:]) for piece in again.add(body)]
        assert "".join([*told, *again.end(ended)]) == text_of(ended)
