"""`GET /api/inbox`: everything that waits for a person.

These are questions of tasks, approvals of workflow steps, and held tasks. They are answered through tasks and runs.
"""

from typing import Any

from accord.api import child_of, queries, text_of
from accord.api.queries import ListedTask
from accord.console.routing import ApiRequest, route
from accord.console.server_context import ServerSection
from accord.console.views import TaskRow, View, WaitingReason, schema_of, task_row
from accord.model import Message, TaskState
from accord.workflows.channel import QuestionOrigin
from accord.workflows.stored_run import RunWait, load_stored_run

LIMIT = 200
"""Maximum number of questions shown, oldest first."""

ASKING = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)


class Question(View, frozen=True, kw_only=True):
    """A question for a person: of a task, or about an approval of a run's step.

    Each question has a unique `id`, also the next one of the same task. `message` is the message that asks it.
    """

    id: str
    message: str | None
    kind: WaitingReason
    text: str
    since: str
    task: TaskRow
    run: str | None
    step: str | None
    schema: dict[str, Any] | None


class Inbox(View, frozen=True, kw_only=True):
    """All questions for a person, oldest first."""

    items: list[Question]
    feed: int


class InboxApi(ServerSection):
    """The inbox."""

    @route("GET", "/api/inbox")
    async def inbox(self, request: ApiRequest) -> Inbox:
        """List everything that waits for a person, oldest first."""
        caller, feed = request.caller, self._server.feed.seq
        visible = self._server.visibility.visible_tasks(caller)
        waiting = await queries.list_waiting_tasks(self._server.store, caller.tenant, visible, ASKING, LIMIT)
        passed_on = {_passed_on(task.message) for task in waiting}
        items: list[Question] = []
        for task in waiting:
            if task.id not in passed_on:  # the question is answered at the task it was passed to
                items += await self._questions(task)
        return Inbox(items=sorted(items, key=lambda item: (item.since, item.id)), feed=feed)

    async def _questions(self, task: ListedTask) -> list[Question]:
        """Return the questions of a task: usually one, but each step of a run may wait for approval."""
        row, step = task_row(task, self._server.visibility), _step(task.message)
        run = await load_stored_run(self._server.store, task.id) if task.is_run else None
        waits = [] if run is None else [wait for wait in run.waits() if wait.is_approval]
        current = next((wait for wait in waits if wait.step == step), None)
        later = [_question(row, wait, text=f"Approve {wait.step}?") for wait in waits if wait != current]
        message = task.message
        asked = {} if message is None else {"message": message.message_id, "text": text_of(message.parts)}
        kind = row.waiting or "input"
        return [_question(row, current, kind=kind, step=step, schema=schema_of(message), **asked), *later]


def _question(row: TaskRow, wait: RunWait | None, **fields: Any) -> Question:
    """Return a question of a task, or about an approval that its run waits for."""
    step = None if wait is None else wait.step
    members = {"message": None, "kind": "approval", "text": "", "step": step, "schema": None} | fields
    key = members["message"] or "" if wait is None else f"{wait.step}/{wait.attempt}"
    run = None if members["step"] is None else row.id
    return Question(id=f"{row.id}/{key}", since=row.updated_at, task=row, run=run, **members)


def _passed_on(message: Message | None) -> str | None:
    """Return the task that a message passes a question on from: a child task or a step's task."""
    return None if message is None else QuestionOrigin.of(message).task or child_of(message)


def _step(message: Message | None) -> str | None:
    """Return the workflow step that a question asks to approve."""
    origin = QuestionOrigin.of(message)
    return origin.step if origin.is_approval and origin.task is None else None
