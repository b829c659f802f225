"""Steps of a run as somebody watches them: what events come to, and which of many rows are drawn."""

from rich.console import Console

from accord.cli.run_display import RunEvent, StepRow, StepRows, StepTree, _rows_that_fit, format_duration, run_events
from accord.model import Event, Message, Part, Role, StatusUpdate, TaskState, TaskStatus
from accord.workflows.stored_run import StoredStep

AT = "2026-01-01T00:00:00.000Z"


def event(text: str | None = None, state: TaskState = TaskState.WORKING, **about: object) -> Event:
    message = None if text is None else Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),))
    status = TaskStatus(state=state, message=message)
    return Event(
        seq=1, body=StatusUpdate(task_id="t", context_id="c", status=status, metadata={"workflow": about}), at=AT
    )


def test_step_events_end_and_start_steps() -> None:
    ended, started = run_events(
        event("**[a]** Completed (deterministic)\nx", step="a", status="completed", attempt=2, started=["b"])
    )
    assert (ended.event, ended.step, ended.status, ended.attempt) == ("ended", "a", "completed", 2)
    assert (started.event, started.step, started.at) == ("started", "b", AT)


def test_lines_outputs_and_questions_are_distinguished() -> None:
    assert [one.text for one in run_events(event("**[a]** as it goes", step="a"))] == ["as it goes"]
    (printed,) = run_events(event(step="a", output="line"))
    assert (printed.event, printed.text) == ("output", "line")
    (asked,) = run_events(event("Sure?", TaskState.INPUT_REQUIRED))
    assert (asked.event, asked.text) == ("asks", "Sure?")


def test_unrelated_events_change_nothing() -> None:
    status = TaskStatus(state=TaskState.WORKING)
    assert list(run_events(Event(seq=1, body=StatusUpdate(task_id="t", context_id="c", status=status)))) == []


def test_items_stand_below_their_map_in_the_order_in_which_they_began() -> None:
    steps = StepRows()
    steps.load(
        [StoredStep(name="m", type="map", status="running"), StoredStep(name="z", type="wait", status="pending")]
    )
    for name in ("m[1]", "m[0]", "m[1][0]"):
        steps.apply(RunEvent(event="started", step=name, at=AT))
    assert [(row.name, row.depth) for row in steps.rows()] == [
        ("m", 0),
        ("m[1]", 1),
        ("m[1][0]", 2),
        ("m[0]", 1),
        ("z", 0),
    ]


def test_repeated_events_are_counted_once() -> None:
    steps = StepRows()
    steps.load([StoredStep(name="a", type="deterministic", status="running", attempts=1)])
    steps.apply(RunEvent(event="started", step="a", at=AT))
    (row,) = steps.rows()
    assert (row.attempt, row.status) == (1, "running")
    steps.apply(RunEvent(event="ended", step="a", status="retrying", attempt=1))
    steps.apply(RunEvent(event="started", step="a", at=AT))
    assert row.attempt == 2


def test_the_last_line_of_a_step_is_shown() -> None:
    steps = StepRows()
    steps.apply(RunEvent(event="started", step="a", at=AT))
    steps.set_text("a", "one\ntwo\n\n")
    (row,) = steps.rows()
    assert (row.said, row.status, row.attempt) == ("two", "running", 1)
    steps.apply(RunEvent(event="ended", step="a", status="retrying", error="bad\nworse", attempt=1, seconds=1.5))
    assert (row.said, row.status, row.seconds) == ("worse", "waiting", 1.5)
    steps.apply(RunEvent(event="started", step="a", at=AT))
    assert (row.said, row.status, row.attempt, row.seconds) == ("", "running", 2, None)


def test_running_steps_precede_ended_and_planned_steps() -> None:
    rows = [StepRow(f"done-{n}", status="completed") for n in range(50)]
    rows += [StepRow("bad", status="failed"), StepRow("busy", status="running")]
    rows += [StepRow(f"later-{n}") for n in range(50)]
    assert [row.name for row in _rows_that_fit(rows, 4)] == ["done-48", "done-49", "bad", "busy"]
    assert _rows_that_fit(rows[:3], 4) == rows[:3]


def test_trees_fit_the_terminal_without_control_characters() -> None:
    steps = StepRows()
    for number in range(500):
        steps.apply(RunEvent(event="started", step=f"step-{number}", at=AT))
    steps.set_text("step-0", "evil \x1b[2J" + "x" * 500)
    console = Console(width=60, height=20, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as drawn:
        console.print(StepTree(console, steps)._drawn())
    lines = drawn.get().splitlines()
    assert len(lines) <= 20
    assert "\x1b" not in drawn.get()
    assert all(len(line) <= 60 for line in lines)
    assert "and 484 more" in drawn.get()
    assert lines[-1].startswith("0 of 500 steps")


def test_durations_are_spelled_for_people() -> None:
    assert [format_duration(one) for one in (0.04, 59.94, 61, 3600, 90_000)] == [
        "0.0s",
        "59.9s",
        "1m01s",
        "1h00m",
        "25h00m",
    ]
