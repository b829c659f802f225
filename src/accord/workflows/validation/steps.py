"""Check steps: required and unused members, custom steps, times."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, get_type_hints
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct, inspect

from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.entries import NotRegistered, Unusable
from accord.workflows.attempts import behavior_of
from accord.workflows.decoder import default_of, fields_of
from accord.workflows.document import Step, Verification
from accord.workflows.executors import STEPS
from accord.workflows.expressions import texts_in
from accord.workflows.findings import BadDocument, CheckProblem, Where
from accord.workflows.notation import format_duration
from accord.workflows.planner import FILES, expand_custom_step
from accord.workflows.references import unknown_name_fix
from accord.workflows.step_types import STEP_TYPES, step_type
from accord.workflows.triggers import BadCron, read_cron
from accord.workflows.validation.subject import PlacedStep, Subject

FIX_REGEX = "write it in the syntax of RE2, with \\ before signs that are meant literally"
OUTSIDE: Mapping[str, str] = {
    "dependsOn": "write it for the map itself",
    "maxIterations": "let the map run a workflow that has the loop",
}
"""Members that the step of a map cannot have. Its items all start with the map, once each."""


def stated_members(step: Step) -> Iterator[str]:
    """Yield the names of the members that a step has."""
    return (field.encode_name for field in fields_of(Step) if getattr(step, field.name) != default_of(field))


def check_required_members(subject: Subject) -> Iterator[CheckProblem]:
    """Check that steps have the members that their types require."""
    for placed in _plain(subject):
        kind = subject.kind_of(placed.step)
        row, stated = step_type(kind), set(stated_members(placed.step))
        agent = subject.agent_of(placed.step)
        stated |= {"task"} if agent is not None and agent.task is not None else set()
        for name in row.needs:
            if name not in stated:
                yield _missing(placed, kind, name)
        if row.either and not stated & set(row.either):
            names = ", ".join(f"`{name}`" for name in row.either)
            message = f"A step of the type {kind} needs one of {names}"
            yield CheckProblem("MISSING_MEMBER", placed.where, message, f"add `{row.either[0]}: ...`")


def check_unused_members(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no member of a step is without effect for its type."""
    for placed in _plain(subject):
        step, where, outer = placed.step, placed.where, placed.outer
        kind = subject.kind_of(step)
        # a remote agent's work is verified here, in a directory
        used = step_type(kind).members | ({"cwd", "workdir"} if step.verification is not None else set())
        for name in stated_members(step):
            if outer is not None and name in OUTSIDE:
                message = f"`{name}` does nothing within a map"
                yield CheckProblem("UNUSED_MEMBER", (*where, name), message, OUTSIDE[name], at_key=True)
            elif name not in used:
                message = f"`{name}` does nothing for a step of the type {kind}"
                yield CheckProblem("UNUSED_MEMBER", (*where, name), message, _instead(name), at_key=True)


def _instead(name: str) -> str:
    """Return the fix for a member without effect: `use`, the only type that has it, or its removal."""
    types = [kind for kind, row in STEP_TYPES.items() if name in row.members]
    what = "`use`" if name == "with" else f"`type: {types[0]}`" if len(types) == 1 else None
    return "remove it" if what is None else f"add {what}, or remove it"


def check_options(subject: Subject) -> Iterator[CheckProblem]:
    """Check the `with` of steps whose type another package adds."""
    for placed in _plain(subject):
        if not placed.step.is_added:
            continue
        try:
            kind = STEPS.load(placed.step.kind)
        except (NotRegistered, Unusable) as error:
            yield CheckProblem("BAD_VALUE", (*placed.where, "type"), str(error), "see what its package needs")
            continue
        yield from _misgiven(placed, {one.encode_name: one for one in fields_of(kind.options)}, kind.options)


def _misgiven(placed: PlacedStep, fields: Mapping[str, inspect.Field], options: type[Struct]) -> Iterator[CheckProblem]:
    step, where = placed.step, placed.where
    hints = get_type_hints(options, include_extras=True)
    for name, value in step.with_.items():
        if name not in fields:
            message = f"A step of the type {step.kind} is given nothing called `{name}`"
            yield CheckProblem(
                "BAD_PARAMS", (*where, "with", name), message, f"known are {', '.join(fields)}", at_key=True
            )
        elif (wrong := _misfit(value, hints[fields[name].name])) is not None:
            yield CheckProblem("BAD_PARAMS", (*where, "with", name), f"`{name}`: {wrong}", "correct it")
    for name, member in fields.items():
        if member.required and name not in step.with_:
            message = f"A step of the type {step.kind} is given no `{name}`"
            yield CheckProblem("BAD_PARAMS", where, message, f"add `with: {{ {name}: ... }}`")


def _misfit(value: Any, kind: Any) -> str | None:
    """Return why a value does not have a type, or None. A template has a value only in a run."""
    if any("{{" in text for text in texts_in(value)):
        return None
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def check_conflicts(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no two members of a step contradict each other."""
    for step, where, *_ in _plain(subject):
        if step.command is not None and step.argv is not None:
            message = "`command` and `argv` both say what is run"
            yield CheckProblem("CONFLICT", (*where, "argv"), message, "remove one of them", at_key=True)
        if step.allow_interpreter and step.argv is None:
            message = "`allowInterpreter` is for `argv`"
            yield CheckProblem(
                "CONFLICT", (*where, "allowInterpreter"), message, "write `argv`, or remove it", at_key=True
            )
        if not subject.row_of(step).is_waiting and step.until is not None and step.max_iterations is None:
            message = "`until` says when a loop ends, and there is none"
            yield CheckProblem("MISSING_MEMBER", (*where, "until"), message, "add `maxIterations: 3`", at_key=True)


def check_commands(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no command is blank, because it would succeed without doing anything."""
    for step, where, *_ in subject.steps:
        if step.command is not None and not step.command.strip():
            yield CheckProblem("BLANK_COMMAND", (*where, "command"), "`command` is blank", "say what is run")
        if step.argv is not None and not step.argv[0].strip():
            yield CheckProblem("BLANK_COMMAND", (*where, "argv"), "The program of `argv` is blank", "say what is run")
        if step.task is not None and not step.task.strip():
            yield CheckProblem("MISSING_MEMBER", (*where, "task"), "`task` is blank", "say what is to be done")
    for number, workflow in enumerate(subject.document.workflows):
        for at, one in enumerate(workflow.preflight):
            if not one.command.strip():
                where = ("workflows", number, "preflight", at, "command")
                yield CheckProblem("BLANK_COMMAND", where, "`command` is blank", "say what is looked at")


def check_verifications(subject: Subject) -> Iterator[CheckProblem]:
    """Check that verifications are valid and check something."""
    for step, where, *_ in subject.steps:
        verification = step.verification
        if verification is not None and verification.argv is not None:
            if verification.type != "custom" or verification.value:
                message = "`argv` is the command of a `custom` check, in place of `value`"
                yield CheckProblem(
                    "CONFLICT", (*where, "verification", "argv"), message, "remove one of them", at_key=True
                )
        elif verification is not None and (wrong := _wrong(verification)) is not None:
            code, message, fix = wrong
            yield CheckProblem(code, (*where, "verification", "value" if verification.value else "type"), message, fix)


def check_preflight_patterns(subject: Subject) -> Iterator[CheckProblem]:
    """Check that regular expressions of preflight checks and agents are valid."""
    for number, workflow in enumerate(subject.document.workflows):
        for at, one in enumerate(workflow.preflight):
            where = ("workflows", number, "preflight", at)
            for name, pattern in (("failIf", one.fail_if), ("successIf", one.success_if)):
                if pattern is not None and (error := _pattern_error(pattern)) is not None:
                    yield CheckProblem("BAD_PATTERN", (*where, name), error, FIX_REGEX)
    for at, agent in enumerate(subject.document.agents):
        if agent.done is not None and (error := _pattern_error(agent.done)) is not None:
            yield CheckProblem("BAD_PATTERN", ("agents", at, "done"), error, FIX_REGEX)


def _plain(subject: Subject) -> Iterator[PlacedStep]:
    """Yield the steps without `use`. The others are not complete before they are expanded."""
    return (placed for placed in subject.steps if placed.step.use is None)


def _missing(placed: PlacedStep, kind: str, name: str) -> CheckProblem:
    message = f"A step of the type {kind} needs `{name}`"
    fix = f"add `{name}: ...`"
    if name in ("agent", "task") and placed.step.command_line is not None:
        fix = "add `type: deterministic`"
    return CheckProblem("MISSING_MEMBER", placed.where, message, fix)


def _wrong(wanted: Verification) -> tuple[str, str, str] | None:
    """Return the code, message and fix for a verification that is not valid, or None."""
    value = wanted.value.strip()
    is_fixed = "{{" not in value
    if wanted.type == "custom" and not value:
        return "BLANK_COMMAND", "A check without a command proves nothing", "add `value: COMMAND`"
    if wanted.type in ("output_contains", "regex", "file_exists") and not value:
        return "MISSING_MEMBER", f"`{wanted.type}` needs a `value`: without one it proves nothing", "add `value: ...`"
    if wanted.type == "exit_code" and is_fixed and value and re.fullmatch(r"-?\d+", value) is None:
        return "BAD_VALUE", f"{value} is not a valid exit code", "write a whole number"
    if wanted.type == "file_exists" and is_fixed and ".." in PurePath(value).parts:
        return "BAD_VALUE", f"{value} is not below where the step works", "write an absolute path, or one without .."
    if wanted.type == "pr_url" and is_fixed and value and re.fullmatch(r"[\w.-]+/[\w.-]+", value) is None:
        return "BAD_VALUE", f"{value} is not a valid repository", "write OWNER/NAME, or nothing"
    pattern = value if wanted.type == "regex" else value.removeprefix("regex:") if value.startswith("regex:") else ""
    if wanted.type in ("regex", "custom") and is_fixed and (error := _pattern_error(pattern)) is not None:
        return "BAD_PATTERN", error, FIX_REGEX
    return None


def _pattern_error(pattern: str) -> str | None:
    try:
        compile_regex(pattern)
    except BadRegex as error:
        return str(error)
    return None


STEP_CHECKS = (
    check_required_members,
    check_unused_members,
    check_options,
    check_conflicts,
    check_commands,
    check_verifications,
    check_preflight_patterns,
)


def check_custom_steps_exist(subject: Subject) -> Iterator[CheckProblem]:
    """Check that custom steps exist."""
    for step, where, *_ in subject.written:
        if step.use is not None and step.use not in subject.custom:
            fix = unknown_name_fix(step.use, subject.custom, f"add it to `steps`, or to {FILES[-1]}")
            yield CheckProblem(
                "UNKNOWN_CUSTOM_STEP", (*where, "use"), f"There is no step of your own called {step.use}", fix
            )


def check_params(subject: Subject) -> Iterator[CheckProblem]:
    """Check that custom steps get their required parameters and no unknown ones."""
    for step, where, *_ in subject.written:
        custom = subject.custom.get(step.use or "")
        if custom is None:
            continue
        params = {param.name: param for param in custom.params}
        for name in step.with_.keys() - params.keys():
            fix = unknown_name_fix(name, params, "it takes " + (", ".join(params) or "nothing"))
            yield CheckProblem("BAD_PARAMS", (*where, "with", name), f"{step.use} does not take `{name}`", fix)
        for name, one in params.items():
            if one.required and one.default is None and name not in step.with_ and getattr(step, name, None) is None:
                message = f"{step.use} needs `{name}`"
                yield CheckProblem("BAD_PARAMS", (*where, "use"), message, f"add `with: {{{name}: ...}}`")


def check_expanded_steps(subject: Subject) -> Iterator[CheckProblem]:
    """Check that custom steps are valid once their parameters are filled in."""
    for step, where, *_ in subject.written:
        try:
            expand_custom_step(step, subject.custom)
        except BadDocument as error:
            for finding in error.findings:
                if finding.code not in ("UNKNOWN_CUSTOM_STEP", "BAD_PARAMS"):
                    yield CheckProblem(finding.code, (*where, "use"), f"{step.use}: {finding.message}", finding.fix)


CUSTOM_STEP_CHECKS = (check_custom_steps_exist, check_params, check_expanded_steps)


LONG = 12 * 3600.0
"""A timeout in seconds that agents and commands seldom have. As 43,200 milliseconds it is common."""


def check_types(subject: Subject) -> Iterator[CheckProblem]:
    """Check the rules that each type of step has of its own."""
    for placed in subject.steps:
        for check in behavior_of(subject.kind_of(placed.step)).checks:
            yield from check(placed.step, placed.where, subject.agent_of(placed.step), subject.document)


def check_long_timeouts(subject: Subject) -> Iterator[CheckProblem]:
    """Check for timeouts that may have been meant as milliseconds."""
    stated: list[tuple[Where, float | None]] = [
        ((*where, "timeout"), step.timeout)
        for step, where, *_ in subject.steps
        if subject.row_of(step).is_retryable and not step.is_added
    ]
    for at, agent in enumerate(subject.document.agents):
        stated += [
            (("agents", at, "timeout"), agent.timeout),
            (("agents", at, "constraints", "timeout"), agent.constraints.timeout),
        ]
    for where, time in stated:
        if time is not None and time >= LONG:
            message = f"The timeout is {format_duration(time)}"
            yield CheckProblem("LONG_TIMEOUT", where, message, "write `timeoutMs` if milliseconds were meant")


def check_schedule_times(subject: Subject) -> Iterator[CheckProblem]:
    """Check that schedules and their time zones are valid."""
    for at, one in enumerate(subject.document.on.schedule if subject.document.on else ()):
        where = ("on", "schedule", at)
        try:
            read_cron(one.cron)
        except BadCron as error:
            fix = 'write minute, hour, day, month and weekday: "30 6 * * 1-5"'
            yield CheckProblem("BAD_TIME", (*where, "cron"), str(error), fix)
        try:
            ZoneInfo(one.timezone)
        except (ValueError, OSError, KeyError):
            message = f"There is no time zone {one.timezone}"
            yield CheckProblem("BAD_TIME", (*where, "timezone"), message, "write one like Europe/Berlin, or UTC")


TIME_CHECKS = (check_types, check_long_timeouts, check_schedule_times)
