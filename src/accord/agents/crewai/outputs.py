"""What crew tasks gave: kept as JSON, and given back to the crew as if they had just been done."""

from typing import Any

from msgspec import Struct


class Output(Struct, frozen=True, kw_only=True):
    """What a crew task gave."""

    agent: str
    raw: str
    data: Any = None
    is_pydantic: bool = False


def kept(output: Any) -> Output:
    """Return what is kept of a crew task's output."""
    data = output.json_dict if output.pydantic is None else output.pydantic.model_dump(mode="json")
    return Output(agent=output.agent, raw=output.raw, data=data, is_pydantic=output.pydantic is not None)


def restored(task: Any, output: Output) -> Any:
    """Return the output of a task that was done in an earlier run."""
    model = task.output_pydantic if output.is_pydantic else None
    return _output(task, output, None if model is None else model.model_validate(output.data))


def accepted(task: Any, answer: str) -> Any:
    """Return the output of a task whose answer a person has accepted."""
    pydantic, data = task._export_output(answer)
    role = task.agent.role if task.agent is not None else ""
    return _output(task, Output(agent=role, raw=answer, data=data), pydantic)


def _output(task: Any, output: Output, pydantic: Any) -> Any:
    from crewai.tasks.task_output import TaskOutput

    return TaskOutput(
        name=task.name,
        description=task.description,
        expected_output=task.expected_output,
        raw=output.raw,
        agent=output.agent,
        pydantic=pydantic,
        json_dict=output.data if pydantic is None else None,
        output_format=task._get_output_format(),
    )
