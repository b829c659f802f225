"""Messages of which it is not known whether they were accepted: what an error tells about that, and how one is found.

It decides and looks, and sends nothing: what is not found may have been accepted all the same (lists lag, leave the
history out, or are cut short), so that finding nothing proves nothing. `talk` stands above.
"""

from accord.agents.remote.means import Peer
from accord.errors import (
    AccordError,
    AuthenticationFailed,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PermissionDenied,
    PushNotSupported,
    RequestTimeout,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
from accord.model import GetRequest, SendRequest, Task, TaskFilter
from accord.model.requests import MAX_PAGE_SIZE
from accord.protocol import lifecycle
from accord.storage.commands.remotes import Link

LOOKS = 5
"""How often a message is looked for before it is waited for: about half a minute, for lists that lag behind."""

PAGES = 10
"""Pages that are looked through each time: ours is new, and lists begin with what is new."""

CANDIDATES = 20
"""Tasks without a history that are read one by one, because some lists leave it out."""

NOBODY_KNOWS = "It is not known whether the remote agent got the message, so it is not sent again"

REFUSALS = (
    AuthenticationFailed,
    ContentTypeNotSupported,
    ExtensionSupportRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ParseError,
    PermissionDenied,
    PushNotSupported,
    TaskNotFound,
    UnsupportedOperation,
    VersionNotSupported,
)
"""Answers of an agent, or of who guards it, that has looked at a message and does not take it."""

WEBHOOK_WORDS = ("push", "webhook", "callback", "url", "https")


def is_refusal(error: AccordError) -> bool:
    """Whether an agent says that it has not taken a message, and will not; a slow one may have been taken."""
    return isinstance(error, REFUSALS) and not isinstance(error, RequestTimeout)


def is_about_webhook(error: Exception, request: SendRequest) -> bool:
    """Whether a message was refused because of the webhook that it brought, so that it may do without."""
    if request.configuration is None or request.configuration.task_push_notification_config is None:
        return False
    if isinstance(error, InvalidParams | PermissionDenied):
        said = " ".join((error.message, *(f"{field} {why}" for field, why in error.violations))).lower()
        return any(word in said for word in WEBHOOK_WORDS)
    return isinstance(error, PushNotSupported)


async def found(peer: Peer, link: Link, message_id: str) -> Task | None:
    """Return the task that has a message of ours, if the agent shows it."""
    if link.remote_id is not None:
        task = await peer.get(GetRequest(id=link.remote_id))
        return task if _has_taken(task, message_id) else None
    # Its name for the conversation is known only once it has answered; until then it may be any.
    return await _listed(peer, link.context_id, message_id) or await _listed(peer, None, message_id)


async def _listed(peer: Peer, context_id: str | None, message_id: str) -> Task | None:
    token: str | None = None
    read = 0
    for _ in range(PAGES):
        wanted = TaskFilter(
            context_id=context_id, page_size=MAX_PAGE_SIZE, history_length=MAX_PAGE_SIZE, page_token=token
        )
        page = await peer.list(wanted)
        for task in page.tasks:
            if not task.history and read < CANDIDATES:
                read += 1
                whole = await peer.get(GetRequest(id=task.id))
                if _has(whole, message_id):
                    return whole
            elif _has(task, message_id):
                return await peer.get(GetRequest(id=task.id))  # a list leaves the artifacts out
        token = page.next_page_token or None
        if token is None:
            break
    return None


def _has_taken(task: Task, message_id: str) -> bool:
    """Whether a task has got an answer to its question; without a history, whether it has gone on since."""
    if task.history:
        return _has(task, message_id)
    return task.status.state not in lifecycle.INTERRUPTED


def _has(task: Task, message_id: str) -> bool:
    return any(said.message_id == message_id for said in task.history)
