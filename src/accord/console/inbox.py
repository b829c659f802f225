"""`GET /api/inbox`: everything that waits for a person.

These are questions of tasks, approvals of workflow steps, and held tasks. They are answered through tasks and runs.
"""

from accord.api import APPROVAL, child_of, queries, text_of
from accord.api.queries import ListedTask
from accord.console.routing import ApiReply, ApiRequest, ApiRoute
from accord.console.server_context import ServerContext
from accord.console.task_rows import schema_of, task_row
from accord.console.views import Inbox, Question, TaskRow
from accord.model import Message, TaskState
from accord.workflows.channel import METADATA
from accord.workflows.stored_run import RunWait, load_stored_run

LIMIT = 200
"""Maximum number of questions shown, oldest first."""

ASKING = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)

PATH = "/api/inbox"


class InboxApi:
    """The inbox."""

    def __init__(self, house: ServerContext) -> None:
        """Create the handlers for `house`."""
        self._house = house

    def routes(self) -> tuple[ApiRoute, ...]:
        """Return the routes."""
        return (ApiRoute("GET", PATH, self.inbox, gives=Inbox),)

    async def inbox(self, asked: ApiRequest) -> ApiReply:
        """List everything that waits for a person, oldest first."""
        caller = asked.known
        feed = self._house.feed.seq
        seen = self._house.sight.seen(caller)
        found = await queries.list_waiting_tasks(self._house.store, caller.tenant, seen, ASKING, LIMIT)
        passed_on = {_passed_on(one.message) for one in found}
        items: list[Question] = []
        for one in found:
            if one.id not in passed_on:  # the question is answered at the task it was passed to
                items += await self._questions(one)
        return ApiReply(body=Inbox(items=sorted(items, key=lambda item: (item.since, item.id)), feed=feed))

    async def _questions(self, found: ListedTask) -> list[Question]:
        """Return the questions of a task: usually one, but each step of a run may wait for approval."""
        row = task_row(found, self._house.sight)
        step = _step(found.message)
        standing = await load_stored_run(self._house.store, found.id) if found.is_run else None
        waits = [] if standing is None else [wait for wait in standing.waits() if wait.is_approval]
        asking = next((wait for wait in waits if wait.step == step), None)
        return [_question(row, found.message, step, asking)] + [
            _approval(row, wait) for wait in waits if wait != asking
        ]


def _question(row: TaskRow, message: Message | None, step: str | None, asking: RunWait | None) -> Question:
    return Question(
        id=f"{row.id}/{'' if message is None else message.message_id}" if asking is None else _id(row, asking),
        message=None if message is None else message.message_id,
        kind=row.waiting or "input",
        text="" if message is None else text_of(message.parts),
        since=row.updated_at,
        task=row,
        run=row.id if step is not None else None,
        step=step,
        schema=schema_of(message),
    )


def _approval(row: TaskRow, wait: RunWait) -> Question:
    """Return an approval that a run asks for after its other question is answered."""
    return Question(
        id=_id(row, wait),
        message=None,
        kind="approval",
        text=f"Approve {wait.step}?",
        since=row.updated_at,
        task=row,
        run=row.id,
        step=wait.step,
        schema=None,
    )


def _id(row: TaskRow, wait: RunWait) -> str:
    return f"{row.id}/{wait.step}/{wait.attempt}"


def _passed_on(message: Message | None) -> str | None:
    """Return the task that a message passes a question on from: a child task or a step's task."""
    if message is None:
        return None
    workflow = (message.metadata or {}).get(METADATA)
    task = workflow.get("task") if isinstance(workflow, dict) else None
    return task if isinstance(task, str) else child_of(message)


def _step(message: Message | None) -> str | None:
    """Return the workflow step that a question asks to approve."""
    said = {} if message is None else message.metadata or {}
    workflow = said.get(METADATA)
    is_own = isinstance(workflow, dict) and "task" not in workflow and said.get(APPROVAL) is True
    step = workflow.get("step") if is_own and isinstance(workflow, dict) else None
    return step if isinstance(step, str) else None
