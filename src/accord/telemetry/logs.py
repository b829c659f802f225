"""Log records of a server: their event names, and their form as text or JSON.

A message may be improved, but its event name is stable. A test requires every record of this package in `EVENTS`, and
the documentation lists them all. Serving commands configure logging. An application that mounts an agent has its own
configuration.
"""

import json
import logging
import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from accord.engine import tracing
from accord.engine.hooks import Detail, ExecutionStarted, TaskFinished
from accord.protocol import http_headers

FOREIGN_EVENT = "log"
"""Event name of records from agents and libraries."""

EVENTS: Mapping[str, str] = {
    # Requests and callers.
    "request failed": "request.failed",
    "call failed": "request.failed",
    "a request failed": "console.request_failed",
    "request ended: the server stops": "request.ended_by_stop",
    "request ended: the client does not read": "request.not_read",
    "a large answer was refused": "answer.refused",
    "a client was disconnected: it does not read": "answer.not_read",
    "stream refused: too much is unread": "stream.refused",
    "connection refused: too many of one client": "connection.refused",
    "stream failed": "stream.failed",
    "stream broke": "stream.broke",
    "stream ended: the client does not read": "stream.not_read",
    "an answer has no protobuf form": "grpc.not_encodable",
    "gRPC takes nobody without a client certificate": "grpc.demands_certificates",
    "refused": "access.refused",
    "a stream ended: its caller is not let in any more": "access.stream_ended",
    "a credential could not be looked up again": "access.not_looked_up",
    "the use of a key was not noted": "access.use_not_noted",
    "an issuer's keys could not be read": "access.issuer_unreadable",
    "audit waits for the store": "audit.waits",
    "audit entries cannot be written": "audit.not_written",
    "audit entries are being lost": "audit.losing",
    "audit entries were lost": "audit.lost",
    "call refused": "mcp.refused",
    "agent not reached": "mcp.not_reached",
    "task cancelled": "mcp.task_cancelled",
    "task was not cancelled": "mcp.task_not_cancelled",
    # The node, its executions and its store.
    "server started": "server.started",
    "server stopped": "server.stopped",
    "cannot start": "server.not_started",
    "systemd was not told": "server.systemd_not_told",
    "node loop failed": "node.loop_failed",
    "left without saying so": "node.left_silently",
    "took over from a node that is gone": "node.reaped",
    "work was held by nobody": "job.orphaned",
    "work could not be begun": "job.not_begun",
    "run was taken away": "run.taken_away",
    "task ended": "task.ended",
    "run lost its claim": "run.fenced",
    "run was not handed over": "run.not_handed_over",
    "run broke off": "run.broke_off",
    "agent failed": "run.agent_failed",
    "agent was interrupted": "run.agent_interrupted",
    "what the agent said was not kept": "run.not_kept",
    "store unavailable": "store.unavailable",
    "clock differs from the store's": "store.clock_differs",
    "the store's clock jumped": "store.clock_jumped",
    "store went back in time": "store.went_back",
    "store lost events": "store.lost_events",
    "command lost a race": "store.race_lost",
    "command interrupted": "store.command_interrupted",
    "connections were cut": "store.connections_cut",
    "tables were not analysed": "store.not_analysed",
    "a batch was refused, its commands run alone": "store.batch_refused",
    "checkpoint failed": "store.checkpoint_failed",
    "log was not synced": "store.log_not_synced",
    "hints are not carried, followers poll": "signals.down",
    "hints are carried again": "signals.up",
    "a hint was not taken": "signals.not_taken",
    "closing failed": "signals.not_closed",
    "upkeep failed": "upkeep.failed",
    "hook failed": "hook.failed",
    "nothing could be counted": "metrics.not_counted",
    # Webhooks, in both directions.
    "a name has no public address": "outbound.no_public_address",
    "the webhook of %s answers %s": "demo.webhook_failed",
    "the webhook of %s is not reached: %s": "demo.webhook_not_reached",
    "webhooks were not claimed": "push.not_claimed",
    "delivery broke off": "push.broke_off",
    "webhook took the end of a task": "push.end_delivered",
    "webhook did not take the end of a task": "push.end_not_delivered",
    "webhook has another sender now": "push.fenced",
    "webhook accepted": "report.accepted",
    "webhook refused": "report.refused",
    "webhook refused: no credentials": "report.no_credentials",
    "webhook refused: no such token": "report.no_such_token",
    "webhook refused: not its task": "report.not_its_task",
    "webhook refused: wrong signature": "report.wrong_signature",
    "a webhook failed": "trigger.failed",
    # Remote agents.
    "remote agent acknowledged": "remote.acknowledged",
    "remote agent cannot be asked": "remote.not_asked",
    "remote agent is not there yet: %s: %s": "remote.not_there",
    "remote agent is still not there": "remote.still_not_there",
    "remote agent not reached": "remote.not_reached",
    "remote agent refused a message": "remote.refused",
    "remote agent takes no webhook": "remote.no_webhook",
    "remote agent uses another context": "remote.other_context",
    "remote card not read again": "remote.card_not_read",
    "remote message is sent again by hand": "remote.message_sent_again",
    "remote stream ended": "remote.stream_ended",
    "remote task cancelled": "remote.cancelled",
    "remote task cannot be cancelled": "remote.not_cancelable",
    "remote task cannot be read": "remote.not_read",
    "remote task ended": "remote.ended",
    "remote task given up": "remote.given_up",
    "remote task is over its budget": "remote.over_budget",
    "remote task is sent again by hand": "remote.task_sent_again",
    "cancel was not passed on": "cancel.not_passed_on",
    "cancels were not passed on": "cancel.loop_failed",
    "bridge is ready": "isek.ready",
    # Agent types.
    "kind of agent cannot be used": "agent.kind_unusable",
    "agent could not cancel": "agent.cancel_failed",
    "agent does not stop": "agent.does_not_stop",
    "agent ended with an error": "agent.late_error",
    "reported after the end": "agent.said_too_late",
    "model refused": "model.refused",
    "model unreachable": "model.unreachable",
    "model of no use": "model.unusable",
    "model call: %s": "model.call_failed",
    "executor failed": "a2a_sdk.executor_failed",
    "crew ended after its run": "crewai.late_end",
    "crew takes no files: %s": "crewai.no_files",
    "method of a flow is not kept": "crewai.not_kept",
    "state of a flow cannot be kept: it is not JSON": "crewai.state_not_kept",
    "flow not answered": "http.not_answered",
    "flow refused": "http.refused",
    "flow's answer was cut off": "http.answer_cut",
    "flow's error was cut off": "http.error_cut",
    "flow cannot call back: %s": "http.no_callback",
    "flow is told to call back to %s, which is this machine": "http.callback_is_local",
    "flow is not told twice": "http.not_told_twice",
    "flow is told again by hand": "http.told_again",
    "flow may not have got the message": "http.maybe_not_told",
    "input_mapper failed": "http.mapper_failed",
    "no place to work": "process.no_place",
    "outbox cannot be read": "process.outbox_unusable",
    "outbox is too deep": "process.outbox_too_deep",
    "process did not end and is killed with its keeper": "process.killed",
    "keeper of a process is gone": "process.keeper_gone",
    "held process is let go of: %s": "process.let_go",
    "task was not told": "process.task_not_told",
    "worktree stays: %s: %s": "process.worktree_stays",
    "removed the directory of an old conversation": "process.directory_removed",
    "relay agent started": "relay.started",
    "relay agent ended: exit status %s": "relay.ended",
    "relay agent was not told to stop": "relay.not_stopped",
    "relay refused": "relay.refused",
    "channel cannot be read": "relay.channel_unreadable",
    "Temporal does not answer": "temporal.no_answer",
    "Temporal refused": "temporal.refused",
    "progress is no text": "temporal.progress_no_text",
    "task is not woken": "temporal.task_not_woken",
    "workflow started": "temporal.started",
    "workflow found": "temporal.found",
    "workflow ended": "temporal.ended",
    "workflow failed": "temporal.failed",
    "workflow cancelled": "temporal.cancelled",
    "workflow terminated: it did not end when it was cancelled": "temporal.terminated",
    "workflow did not say how it stands": "temporal.no_progress",
    "workflow is not watched": "temporal.not_watched",
    # Workflows.
    "step failed": "workflow.step_failed",
    "agent has no card: %s": "workflow.no_card",
    "schedule began a run": "schedule.began",
    "schedule could not begin a run: %s": "schedule.not_begun",
    "schedules wait: %s": "schedule.waits",
    "schedules failed": "schedule.loop_failed",
    # The console, the registry and credentials.
    "a page was sent away": "console.sent_away",
    "news cannot be read at the moment": "console.news_unreadable",
    "news were not told": "console.news_not_told",
    "an answer is followed again later": "chat.followed_later",
    "an answer could not be followed": "chat.not_followed",
    "an inspected request failed": "console.inspection_failed",
    "not signed in": "console.not_signed_in",
    "somebody could not sign in": "console.sign_in_failed",
    "published agents are not known at the moment": "registry.unknown",
    "looking for published agents failed": "registry.loop_failed",
    "an entry of a key file is skipped": "keys.entry_skipped",
    "there is no such key file": "keys.no_file",
    "there is no keyring": "keys.no_keyring",
    "the keyring cannot be asked": "keys.keyring_failed",
}
"""Message template of a record -> its event name. Two messages may share one."""


STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Fields of every record. Other fields are extra."""

CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal would interpret, reorder, or take for a line end. Records may contain foreign text."""

OWN_FIELDS = ("ts", "level", "event", "logger", "message", "exception")
"""JSON fields of every record. An extra field with one of these names gets a trailing underscore."""

NO_CONTEXT: Mapping[str, str] = MappingProxyType({})

_log_context: ContextVar[Mapping[str, str]] = ContextVar("accord_about", default=NO_CONTEXT)
"""Context of all records written here: the task of an execution, also for its agent's own records."""

SERVER_LOGGER = "accord.server"
"""Logger of a server's start and stop, which frame a stream of records."""

log = logging.getLogger("accord.tasks")

PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)


class LineFormatter(logging.Formatter):
    """Formats a record as a line: time, level, logger, message, and then `name=value` for each extra field."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line. A traceback follows on the next lines."""
        said = _harmless(record.message).replace("\n", "\\n")
        about = "".join(
            f" {name}={_format_value(value)}" for name, value in (_extra_fields(record) | _trace_fields()).items()
        )
        return f"{self.formatTime(record)} {record.levelname} {record.name}: {said}{about}"

    def formatException(self, ei: Any) -> str:
        """Return a traceback. Its last line may contain foreign text."""
        return _harmless(super().formatException(ei))


class JsonFormatter(LineFormatter):
    """Formats a record as a one-line JSON object, with its event name and its context."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Values without a JSON form are converted to text."""
        is_ours = record.name == "accord" or record.name.startswith("accord.")
        said: dict[str, Any] = {
            "ts": self.formatTime(record),
            "level": record.levelname.lower(),
            "event": EVENTS.get(str(record.msg), FOREIGN_EVENT) if is_ours else FOREIGN_EVENT,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {**_log_context.get(), **_extra_fields(record), **_trace_fields()}
        said |= {f"{name}_" if name in OWN_FIELDS else name: value for name, value in more.items()}
        if record.exc_info and record.exc_info[0] is not None:
            said["exception"] = logging.Formatter.formatException(self, record.exc_info)
        return json.dumps(said, default=_text).replace("\x7f", "\\u007f")


FORMS: Mapping[str, type[LineFormatter]] = {"text": LineFormatter, "json": JsonFormatter}
"""Formatters by the name of the setting."""


def configure_logging(form: str = "text", level: str = "warning") -> None:
    """Log to standard error, unless the program has handlers.

    It writes records of Accord from `level` on, and warnings of other loggers. Start and stop of the server are always
    logged as JSON, and never as text: people see a panel instead.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(FORMS[form]())
    root.addHandler(handler)
    logging.getLogger("accord").setLevel(level.upper())
    logging.getLogger(SERVER_LOGGER).setLevel(logging.INFO if FORMS[form] is JsonFormatter else logging.WARNING)


def log_task_end(detail: TaskFinished) -> None:
    """Log the end of a task."""
    if not log.isEnabledFor(logging.INFO):  # the record costs every send
        return
    about = {"task_id": detail.task_id, "agent": detail.agent, "state": detail.state.name}
    log.info("task ended", extra=about | {"tenant": detail.tenant} if detail.tenant else about)


def log_context_hook(detail: Detail) -> None:
    """Add the task to the context of all records of an execution; this is the hook.

    That includes records of its agent. The hook is called within the execution's own context.
    """
    if isinstance(detail, ExecutionStarted):
        said = {"task_id": detail.task_id, "context_id": detail.context_id, "agent": detail.agent}
        _log_context.set(said | {"tenant": detail.tenant} if detail.tenant else said)


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields of a record."""
    return {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}


def _trace_fields() -> dict[str, str]:
    """Return the IDs of the current trace and span, if traced."""
    found = http_headers.trace_ids(tracing.current())
    return {} if found is None else {"trace_id": found[0], "span_id": found[1]}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _format_value(value: object) -> str:
    text = _text(value)
    return text if PLAIN.fullmatch(text) else _harmless(json.dumps(text, ensure_ascii=False))


def _harmless(text: str) -> str:
    return CONTROL_CHARACTERS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
