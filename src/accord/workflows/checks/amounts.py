"""Times: whether they are some, whether anything bounds a step, and whether milliseconds were meant."""

from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

from accord.workflows.checks.subject import Problem, Subject, Where
from accord.workflows.cron import BadCron, read_cron
from accord.workflows.durations import format_duration

LONG = 12 * 3600.0
"""Seconds that a timeout of one agent or command seldom has, and 43,200 milliseconds often."""


def timeouts(subject: Subject) -> Iterator[Problem]:
    """Something bounds how long an agent may take."""
    for step, where, *_ in subject.steps:
        if subject.kind_of(step) != "agent" or step.use is not None or step.timeout is not None:
            continue
        agent = subject.agent_of(step)
        if subject.document.swarm.timeout is None and (
            agent is None or (agent.timeout or agent.constraints.timeout) is None
        ):
            message = f"Nothing bounds how long {step.name} may take"
            yield Problem("NO_TIMEOUT", where, message, "add `timeout: 30m` to it, its agent or `swarm`")


def lengths(subject: Subject) -> Iterator[Problem]:
    """Nobody meant milliseconds."""
    stated: list[tuple[Where, float | None]] = [
        ((*where, "timeout"), step.timeout)
        for step, where, *_ in subject.steps
        if subject.kind_of(step) in ("agent", "deterministic", "a2a", "worktree")
    ]
    for at, agent in enumerate(subject.document.agents):
        stated += [
            (("agents", at, "timeout"), agent.timeout),
            (("agents", at, "constraints", "timeout"), agent.constraints.timeout),
        ]
    for where, time in stated:
        if time is not None and time >= LONG:
            message = f"The timeout is {format_duration(time)}"
            yield Problem("LONG_TIMEOUT", where, message, "write `timeoutMs` if milliseconds were meant")


def moments(subject: Subject) -> Iterator[Problem]:
    """What is waited for is a time, and comes."""
    for step, where, *_ in subject.steps:
        until = step.until
        if subject.kind_of(step) != "wait" or until is None or "{{" in until:
            continue
        try:
            moment = datetime.fromisoformat(until)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            message = f"{until} is no time with a zone"
            yield Problem("BAD_TIME", (*where, "until"), message, "write it like 2030-01-31T08:00:00Z")


def schedules(subject: Subject) -> Iterator[Problem]:
    """Schedules come, in a zone that there is."""
    for at, one in enumerate(subject.document.on.schedule if subject.document.on else ()):
        where = ("on", "schedule", at)
        try:
            read_cron(one.cron)
        except BadCron as error:
            fix = 'write minute, hour, day, month and weekday: "30 6 * * 1-5"'
            yield Problem("BAD_TIME", (*where, "cron"), str(error), fix)
        try:
            ZoneInfo(one.timezone)
        except (ValueError, OSError, KeyError):
            message = f"There is no time zone {one.timezone}"
            yield Problem("BAD_TIME", (*where, "timezone"), message, "write one like Europe/Berlin, or UTC")


TIME_CHECKS = (timeouts, lengths, moments, schedules)
