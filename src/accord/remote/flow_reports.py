"""Reports of HTTP flows on their tasks, in a small JSON format of our own."""

from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from accord.errors import InvalidParams, TaskNotFound
from accord.model import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from accord.model.base import Metadata
from accord.model.metadata_keys import USAGE
from accord.protocol import lifecycle
from accord.protocol.budgets import TokenUsage, TotalUsage
from accord.remote.reports import Report
from accord.remote.tasks import RemoteTasks, ReportCredentials, ReportSender, unauthenticated
from accord.storage.commands.remote_tasks import RemoteLink

PATH = "/api/callbacks"
"""Path to which flows report. The token in the query identifies the task."""

WEBHOOK = "/api/webhook/tasks"
"""Path to which remote agents report. The operator may configure its public address."""

STATES = {
    "working": TaskState.WORKING,
    "completed": TaskState.COMPLETED,
    "failed": TaskState.FAILED,
    "input-required": TaskState.INPUT_REQUIRED,
}

FAILED, QUESTION = "The flow failed", "The flow needs an answer"
"""Default texts for a flow that reports none."""


class ReportedFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file: its bytes in base64, or its address. Flows receive files in the same form."""

    name: str | None = None
    mime_type: str = "application/octet-stream"
    data: bytes | None = None
    uri: str | None = None

    def __post_init__(self) -> None:
        """Refuse a file with neither bytes nor address, or with both."""
        if (self.data is None) == (self.uri is None):
            raise ValueError("A file has either data, in base64, or a uri")

    def part(self) -> Part:
        """Return it as a part."""
        return Part(raw=self.data, url=self.uri, filename=self.name, media_type=self.mime_type)


class ReportedUsage(TokenUsage, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The total usage of a flow for a task, attributed to one model if it names one."""

    model: str | None = None

    @property
    def total(self) -> Metadata:
        """The usage in the form that tasks show."""
        use = TokenUsage().and_(self)
        return {
            USAGE: msgspec.to_builtins(
                TotalUsage(**structs.asdict(use), models={self.model: use} if self.model else {})
            )
        }


class FlowReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One report. With an increasing `sequence`, late and duplicate reports are detected."""

    status: Literal["working", "completed", "failed", "input-required"]
    text: str | None = None
    data: Any | UnsetType = UNSET
    files: tuple[ReportedFile, ...] = ()
    usage: ReportedUsage | None = None
    sequence: Annotated[int, Meta(ge=0, le=2**53)] | None = None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of its content."""
        text = (Part(text=self.text),) if self.text else ()
        data = () if self.data is UNSET else (Part(data=self.data, media_type="application/json"),)
        return (*text, *data, *(file.part() for file in self.files))


class FlowReports:
    """Takes in the reports of flows for `http.webhooks`, as `RemoteTasks` does those of agents."""

    def __init__(self, remotes: RemoteTasks) -> None:
        """Report to the tasks of `remotes`."""
        self._remotes = remotes

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Identify the task by the report's token, before the body is read."""
        sender = await self._remotes.admit(evidence)
        if sender.link is None:  # a signature is not accepted here: the body names no task
            raise unauthenticated()
        return sender

    async def accept(self, sender: ReportSender, body: bytes) -> None:
        """Commit a report. Raises TaskNotFound if the task has ended without its flow."""
        assert sender.link is not None  # otherwise it was not admitted
        tenant, link = sender.tenant, sender.link
        state = await self._remotes.accept_report(tenant, link, read_flow_report(body, link))
        if state in lifecycle.TERMINAL and not await self._remotes.was_reported(tenant, link.task_id):
            how = "was cancelled" if state is TaskState.CANCELED else "has ended without its flow"
            raise TaskNotFound(f"The task {how}: nobody waits for it any more")


def read_flow_report(body: bytes, link: RemoteLink) -> Report:
    """Return the report on a link's task."""
    try:
        report = msgspec.json.decode(body, type=FlowReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParams(f"Not a report: {error}") from None
    state = STATES[report.status]
    parts = report.parts
    if state is TaskState.COMPLETED:
        artifacts = (Artifact(artifact_id=f"answer-{max(1, link.sent)}", parts=parts),) if parts else ()
        return _report(report, link, TaskStatus(state=state), artifacts)
    if not parts and state is not TaskState.WORKING:
        parts = (Part(text=FAILED if state is TaskState.FAILED else QUESTION),)
    message = Message(message_id=uuid4().hex, role=Role.AGENT, parts=parts) if parts else None
    return _report(report, link, TaskStatus(state=state, message=message))


def _report(report: FlowReport, link: RemoteLink, status: TaskStatus, artifacts: tuple[Artifact, ...] = ()) -> Report:
    # A flow has no id of its own for the task. Its report is a task because it is complete: the flow cannot be polled.
    metadata = None if report.usage is None else report.usage.total
    return Report(
        body=Task(id=link.task_id, status=status, artifacts=artifacts, metadata=metadata), seq=report.sequence
    )


def flow_report_url(webhook: str | None) -> str | None:
    """Return the address for reports of flows, derived from the webhook address of remote agents if possible."""
    if webhook is None or not webhook.endswith(WEBHOOK):
        return None
    return webhook.removesuffix(WEBHOOK) + PATH
