"""Where the steps of a workflow stand in the text of their document."""

from accord.workflows.document import Step
from accord.workflows.source import LineRange, StepPositions

TEXT = """\
version: "1"
name: flow
swarm: dag
agents:
  - { name: writer, command: cat }
workflows:
  - name: other
    steps:
      - name: first
        type: deterministic
        command: "true"
  - name: main
    steps:
      - name: first  # of another workflow there is one as well
        type: deterministic
        command: |
          echo one

          echo two

      - { name: second, type: approval, task: "Go on?" }
      # about the third
      - type: map
        name: third
        over: [1]
        step:
          name: inner
          command: echo
    output: done
"""


def lines(name: str, workflow: str = "main", step: Step | None = None, text: str = TEXT) -> LineRange | None:
    return StepPositions(text, workflow).of(name, step)


def test_a_step_stands_from_its_first_line_to_its_last() -> None:
    assert lines("first") == LineRange(14, 19)
    assert lines("first", "other") == LineRange(9, 11)
    assert lines("second") == LineRange(21, 21)
    assert lines("third") == LineRange(23, 28)


def test_generated_steps_keep_their_source_position() -> None:
    assert lines("third[0][2]") == lines("third")
    assert lines("second-round-3") == lines("second")
    assert lines("writer-turn", step=Step(name="writer-turn", agent="writer")) == LineRange(5, 5)


def test_missing_elements_have_no_position() -> None:
    assert lines("fourth") is None
    assert lines("first", "nothing") is None
    assert lines("first", text="a: [") is None
    assert lines("first", text="workflows: {name: main}") is None
    assert lines("first", text="just words") is None
