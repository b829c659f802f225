"""JSON Schema of workflow files, with a description of each key.

Types, defaults and names come from the structs and from `decoder`. A test fails for a key without a description.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec import Struct, inspect, to_builtins

from accord.workflows import decoder
from accord.workflows import document as d
from accord.workflows.document import (
    DURATION_PATTERN,
    CustomStep,
    Document,
    FilePermissions,
    Permissions,
    Step,
    Swarm,
    Trajectories,
    format_duration,
)
from accord.workflows.executors import step_types

MEANINGS: Mapping[type[Struct], Mapping[str, str]] = {
    d.Document: {
        "version": "The version of this form: `1`.",
        "name": "What the workflow is called, also as an agent.",
        "description": "What it is for; the description on its card.",
        "swarm": "How the agents work together. A name alone is a pattern, or a template.",
        "on": "What begins a run of a served workflow, besides a message.",
        "inputs": "Values that whoever runs it gives, by name: `{{inputs.NAME}}`.",
        "vars": "Values by name: `{{vars.NAME}}` or `{{NAME}}`; `--var NAME=VALUE` overrides one.",
        "env": "Variables that all commands get besides the common ones; `${NAME}` is the server's variable.",
        "paths": "Directories by name, for `workdir`.",
        "permission_profiles": "Permissions by name, for `permissions.profile`.",
        "permissions": "Permission profiles and a default, as agent-relay writes them.",
        "agents": "Who works.",
        "steps": "Steps of your own by name, for `use`; `.accord/steps.yaml` and `.relay/steps.yaml` have more.",
        "workflows": "What is done; the first is run unless another is named.",
        "coordination": "Barriers, and how votes are counted.",
        "state": "Values that steps `set` and other steps read as `{{state.NAME}}`.",
        "errorHandling": "What becomes of a run when a step fails.",
        "trajectories": "What of how a run went is written down in an artifact of it; left out, or `false`: nothing.",
    },
    d.FilePermissions: {
        "profiles": "Permissions by name, the same as `permission_profiles`.",
        "default": "The permissions of agents that state none.",
    },
    d.Swarm: {
        "pattern": "How work is divided, by the name of a pattern; left out, it is chosen by the agents' roles.",
        "maxConcurrency": "How many steps work at a time.",
        "timeout": "How long a run may take; it then fails.",
        "tokenBudget": "Tokens that the agents of a run may use together; it then fails.",
        "costBudget": "What the agents of a run may cost together, in dollars; it then fails.",
        "channel": "The channel that progress is posted to.",
        "idleNudge": "What becomes of an agent in a terminal that says nothing.",
        "completionGracePeriod": "How long an agent that is done has to end by itself, at most a minute.",
    },
    d.IdleNudge: {
        "nudgeAfter": "Silence after which it is reminded of its task.",
        "escalateAfter": "Silence after the last reminder, after which it is ended.",
        "maxNudges": "How often it is reminded.",
    },
    d.Triggers: {
        "schedule": "Times at which a run begins.",
        "webhook": "Addresses whose calls begin a run.",
    },
    d.Schedule: {
        "cron": "Minute, hour, day, month and weekday, or `@daily` and the like.",
        "timezone": "The zone that these are meant in.",
        "input": "The run's `{{input}}`.",
        "vars": "Values that override `vars`.",
    },
    d.Hook: {
        "path": "The last part of the address `/hooks/NAME/PATH`.",
        "secret": "The name of the credential that callers sign with; calls without a valid signature are refused.",
        "signature": "What callers sign: `timestamp` (and nonce or id, and body), or the body alone as `github` does.",
        "input": "The run's `{{input}}`; left out, the body of the call.",
    },
    d.Input: {
        "type": "What a value must be; texts from a command line are read as that.",
        "description": "What it is for.",
        "default": "Its value if none is given.",
        "required": "Whether a run is refused without it.",
        "enum": "The values that it may have.",
    },
    d.Path: {
        "name": "What `workdir` calls it.",
        "path": "Where it is: relative to the file, with `$NAME` from the environment.",
        "description": "What is there.",
        "required": "Whether a run is refused without it.",
    },
    d.Permissions: {
        "profile": "The profile that the rest is added to.",
        "access": "What the agent may do: its command gets the flag for it, and what it changed is compared with it.",
        "inherit": "Whether `.agentignore` and `.agentreadonly` count as well.",
        "files": "Patterns of files.",
        "description": "What it is for; the agent is told.",
        "why": "Why it is so; the agent is told.",
    },
    d.Files: {
        "read": "What it is told that it may read.",
        "write": "What it may change: a step that changes anything else fails.",
        "deny": "What it may neither read nor change: a step that changes it fails.",
    },
    d.AgentDef: {
        "name": "What steps call it.",
        "runtime": "`a2a` for an agent at a URL, `cli` for a command.",
        "cli": "Which command line agent it is; `api` is a model behind an OpenAI or Anthropic API.",
        "command": "Any other command: it gets the task as its standard input, or where `{prompt}` stands.",
        "role": "Who it is: it is told, and patterns choose by it.",
        "task": "What it does where the pattern gives it work and no step says otherwise.",
        "channels": "Channels that what it does is posted to besides the run's.",
        "interactive": (
            "Whether it works in a terminal of its own; if not, it is called once for each step. Left out, a `cli` and "
            "a `lead` work in a terminal and any other `command` does not."
        ),
        "preset": "`lead` works in a terminal; `worker`, `reviewer` and `analyst` without, and are told how.",
        "constraints": "What it may use.",
        "cwd": "The directory that it works in, relative to the file.",
        "workdir": "The same, by a name from `paths`.",
        "additionalPaths": "Further directories that it may use.",
        "env": "Variables for its command; `${NAME}` and `${credential:NAME}` are filled in.",
        "allowInterpreter": "Whether `{prompt}` may be an argument of a program that runs its arguments, such as `sh`.",
        "permissions": "What it may change.",
        "skills": "What it is told before its first task; the system prompt of a model.",
        "done": "A pattern: what an agent in a terminal prints when it is done.",
        "url": "Where it is. `${NAME}` is filled in from the environment.",
        "headers": "Headers of every request; `${NAME}` and `${credential:NAME}` are filled in.",
        "credentials": "The name of a credential that it is called with.",
        "timeout": "How long it may take for a step: a minute, unless this or the step says otherwise.",
        "streaming": "Whether what it says is followed as it comes; left out, if it offers that.",
        "mode": "How its result gets here: `stream`, `poll`, `push` by webhook while nothing waits, or `auto`.",
        "shareContext": "Whether its steps in a run are one conversation.",
    },
    d.Constraints: {
        "model": "The model that it is called with.",
        "maxTokens": "Tokens that it may use for a step; the step then fails.",
        "maxCost": "What it may cost for a step, in dollars; the step then fails.",
        "timeout": "How long it may take for a step, unless the step says otherwise.",
        "retries": "How often a step of it is tried again, unless the step says otherwise.",
        "idleThreshold": "Silence after which an agent in a terminal counts as done; 0 for never.",
    },
    d.CustomStep: {
        "params": "What it is given.",
        "step": "Its members, in which `{{NAME}}` is a parameter; they may also stand beside `params`.",
    },
    d.Param: {
        "name": "What it is called in `with` and in templates.",
        "required": "Whether it must be given.",
        "default": "Its value if it is not given.",
        "description": "What it is for.",
    },
    d.Workflow: {
        "name": "What it is called.",
        "steps": "What is done.",
        "description": "What it is for.",
        "onError": "What a failed step means, unless the step says otherwise.",
        "preflight": "What is looked at before the first step; all of it must be right.",
        "output": "What a run of it answers, a template; left out, what its last steps said.",
    },
    d.Preflight: {
        "command": "What is run, for at most 30 seconds; it must succeed.",
        "failIf": "`non-empty`, `empty`, or a pattern: what it must not print.",
        "successIf": "A pattern: what it must print.",
        "description": "What it is for; shown if it fails.",
    },
    d.Step: {
        "name": "What others call it.",
        "type": "What kind of step it is; left out, one for the agent that it names. Packages may add types.",
        "use": "The step of your own that it is.",
        "with": (
            "What a step of your own, or of a type that a package has added, is given; as in agent-relay it may also "
            "stand beside `use`."
        ),
        "description": "What it is for; shown with it.",
        "dependsOn": "The steps and barriers that must have ended before it begins.",
        "if": "A condition: if it is false, the step is skipped and those after it are not.",
        "timeout": "How long an attempt may take; it then fails.",
        "retries": "How often it is tried again after a failure.",
        "retryDelay": "How long to wait before the second attempt.",
        "backoff": "How many times longer to wait before each further attempt.",
        "onError": (
            "What its failure means: `fail` the run; `skip` it and what depends on it; `retry` it; or `continue` with "
            "what depends on it."
        ),
        "onCrash": "What becomes of a command that was running when its node died: `restart` it, or `fail`.",
        "verification": "What must be so afterwards for it to count as done.",
        "maxIterations": "How often it is done at most, until `until` holds or, without that, its `verification`.",
        "permissions": "What its agent may change in this step, instead of the agent's own permissions.",
        "cwd": "The directory that it works in, relative to the file.",
        "workdir": "The same, by a name from `paths`.",
        "env": "Variables for its command.",
        "set": "Values of the shared state that it sets, by name: templates, also over its own output.",
        "agent": "Who does it.",
        "task": "What is to be done, a template; for an approval, what a person is asked.",
        "allowEmpty": "Whether an answer without text or files is a success; left out, it is a failure.",
        "command": "A command for a shell. Templates may stand only in arguments of a few commands: prefer `argv`.",
        "argv": "A program and its arguments, run without a shell: a template is one argument, or a part of one.",
        "allowOptions": "Whether a value may begin with `-`, where the program reads it as an option.",
        "allowInterpreter": "Whether `argv` may give values to a program that runs its arguments, such as `sh`.",
        "failOnError": "Whether an exit code other than 0 is a failure.",
        "captureOutput": "Whether what it prints is its output; if not, that is `Command completed (exit code N)`.",
        "branch": "The branch of the worktree.",
        "baseBranch": "Where a new branch begins; left out, at HEAD.",
        "path": "Where the worktree is; left out, `.worktrees/STEP`.",
        "createBranch": "Whether the branch is made if it is not there.",
        "url": "Where its A2A agent is; it counts before its agent's.",
        "headers": "Headers of its requests, added to its agent's.",
        "credentials": "The name of the credential that it calls with.",
        "streaming": "Whether what the agent says is followed as it comes.",
        "mode": "How the result gets here, as for agents.",
        "shareContext": "Whether it belongs to its agent's conversation in this run.",
        "onReject": "What a rejection means: `fail` the run, which is the default, or `skip` what depends on it.",
        "approvers": "The roles that may decide it; left out, those of `approvals.approvers`, or the owner of the run.",
        "notByStarter": "Whether the owner of the run may not decide it; `approvals.not_by_starter` is for all.",
        "for": "How long to wait.",
        "until": "For a wait, the time that it waits for; for a loop, the condition that ends it.",
        "event": "The name of the event that it waits for.",
        "workflow": "The workflow that it runs: of this file, or of `file`.",
        "file": "The file of that workflow, relative to this one.",
        "input": "The `{{input}}` of that workflow.",
        "vars": "Values that override the `vars` of that workflow.",
        "over": "The list that a map goes over: a list, or a template of one.",
        "as": "What the step within calls an item; it is also `{{item}}`, and its place is `{{index}}`.",
        "concurrency": "How many items are under way at a time.",
        "step": "What is done for each item.",
    },
    d.Verification: {
        "type": "What is looked at.",
        "value": (
            "The text that the output contains, the exit code, the file, the command (with the output in "
            "`$STEP_OUTPUT`), the pattern, or the repository of the pull request."
        ),
        "argv": "For `custom`, in place of `value`: a program and its arguments, run without a shell.",
        "allowOptions": "As for a step.",
        "allowInterpreter": "As for a step.",
        "description": "What it is for; shown if it fails.",
        "timeout": "How long a custom command may take.",
        "diagnosticAgent": "Who says why it failed; the next attempt is told.",
        "diagnosticTimeout": "How long that may take. A plain number is milliseconds here, as in agent-relay.",
    },
    d.Coordination: {
        "barriers": "Points that steps wait for together.",
        "votingThreshold": "The share of votes that a decision needs.",
        "consensusStrategy": "How a decision is reached by the patterns that vote.",
    },
    d.Barrier: {
        "name": "What `dependsOn` calls it.",
        "waitFor": "The steps that it waits for.",
        "timeout": "How long it waits after the first of them began; it then fails.",
        "mode": "How many of them must have ended well.",
    },
    d.SharedState: {
        "backend": "`database` is kept and shared by the runs of a workflow; `memory` is the run's own.",
        "ttl": "How long a value is kept.",
        "namespace": "What it is kept under; workflows with the same share it. Left out, the workflow's name.",
    },
    d.ErrorHandling: {
        "strategy": (
            "`fail-fast` ends the run with the first failure; `continue` does what does not depend on it; `retry` is "
            "`fail-fast` with two retries."
        ),
        "maxRetries": "How often steps are tried again, unless they say otherwise.",
        "retryDelay": "How long to wait before that.",
        "backoff": "How many times longer to wait before each further attempt.",
        "notifyChannel": "The channel that failures are posted to.",
        "repairAgent": "Who is asked to mend what made a step fail, before it is tried again.",
        "repairRetries": "How often that is tried.",
    },
    d.Trajectories: {
        "enabled": "Whether anything is: each step, and how it ended.",
        "reflectOnBarriers": "Also barriers, and how what they waited for ended.",
        "reflectOnConverge": "Also where branches come together, and how they ended.",
        "autoDecisions": "Also what was decided for a step, and why.",
    },
}
"""Struct -> key -> its description."""


DIALECT = "http://json-schema.org/draft-07/schema#"
"""The dialect that YAML editors support best."""

SECRETIVE = {"doNotSuggest": True}
"""Marks other spellings, which are valid but not suggested."""


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of workflow files."""
    definitions = {struct.__name__: _SPECIAL.get(struct, _struct)(struct) for struct in MEANINGS}
    return {
        "$schema": DIALECT,
        "title": "Accord workflow",
        "description": "A workflow of accord: agents, and the steps that they do together.",
        "allOf": [_ref(Document)],  # in this dialect, keywords next to a $ref are ignored
        "definitions": definitions,
    }


def _ref(struct: type[Any]) -> dict[str, str]:
    return {"$ref": f"#/definitions/{struct.__name__}"}


def _struct(struct: type[Struct]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (struct.__doc__ or "").partition("\n")[0],
        "properties": _properties(struct),
        "additionalProperties": False,
        **_required(struct),
    }


_MORE: Mapping[str, dict[str, Any]] = {
    "url": {"anyOf": [{"format": "uri"}, {"pattern": r"\{\{|\$\{"}]},
    "streaming": {"default": True},  # for an agent that offers it
}
"""Keywords that the types do not contain."""


def _properties(struct: type[Struct]) -> dict[str, Any]:
    found = {}
    for name, member in decoder.members_of(struct).items():
        if name == member.name:
            found[name] = {"description": MEANINGS[struct][name], **_of(member.kind), **_default(member)}
            found[name] |= _MORE.get(name, {})
        else:
            told = {"description": f"The same as `{member.name}`.", **SECRETIVE}
            found[name] = {
                **told,
                **({"type": "number", "minimum": 0} if decoder.has_time_unit(name) else _of(member.kind)),
            }
    for (owner, name, also), _ in decoder.SAME_VALUES.items():
        if owner is struct:
            found[name]["enum"] = [*found[name]["enum"], also]
    for (owner, name), only in decoder.IMPLIED.items():
        if owner is struct:
            found[name] = {"description": "Has no effect.", "const": only, **SECRETIVE}
    return found


def _default(member: decoder.MemberName) -> dict[str, Any]:
    value = None if member.field.required else decoder.default_of(member.field)
    if value is None or isinstance(value, Struct | tuple | dict) or value == "":
        return {}
    return {"default": format_duration(value) if decoder.written_as(member.kind) == "duration" else to_builtins(value)}


def _required(struct: type[Struct]) -> dict[str, Any]:
    """Return the required members, each under any of its names."""
    names = {
        field.encode_name: [name for name, member in decoder.members_of(struct).items() if member.field is field]
        for field in decoder.fields_of(struct)
        if field.required
    }
    plain = [name for name, spelled in names.items() if len(spelled) == 1]
    either = [{"anyOf": [{"required": [name]} for name in spelled]} for spelled in names.values() if len(spelled) > 1]
    return ({"required": plain} if plain else {}) | ({"allOf": either} if either else {})


def _step(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a step. With `use`, unknown keys are parameters."""
    found = _struct(struct)
    del found["additionalProperties"]
    only = {"propertyNames": {"enum": list(found["properties"])}}
    return {**found, "if": {"not": {"required": ["use"]}}, "then": only}


def _custom(struct: type[Struct]) -> dict[str, Any]:
    """Return the schema of a custom step. Any member may be a template, and may be next to `params`."""
    found = _struct(struct)
    own = found["properties"]
    inside: dict[str, Any] = {
        "type": "object",
        "properties": {name: {} for name in decoder.members_of(Step)},
        "additionalProperties": False,
    }
    own["step"] = {"description": own["step"]["description"], **inside}
    return {**found, "properties": {**inside["properties"], **own}}


def _short(also: str) -> Callable[[type[Struct]], dict[str, Any]]:
    return lambda struct: {"anyOf": [{"type": also}, _struct(struct)]}


_SPECIAL: Mapping[type[Struct], Callable[[type[Struct]], dict[str, Any]]] = {
    Step: _step,
    CustomStep: _custom,
    Swarm: _short("string"),
    FilePermissions: _short("string"),
    Permissions: _short("string"),
    Trajectories: _short("boolean"),
}


def _of(kind: inspect.Type) -> dict[str, Any]:
    """Return the schema of a type."""
    match kind:
        case inspect.Metadata():
            written = decoder.written_as(kind) or ""
            return {"enum": list(step_types())} if written == "step type" else _WRITTEN[written]
        case inspect.StructType(cls=cls):
            return {"allOf": [_ref(cls)]}
        case inspect.UnionType(types=kinds):
            return {"anyOf": [_of(one) for one in kinds if not isinstance(one, inspect.NoneType)]}
        case inspect.VarTupleType(item_type=item, min_length=least):
            return {"type": "array", "items": _of(item)} | ({"minItems": least} if least else {})
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _of(value)}
        case inspect.LiteralType(values=words):
            return {"enum": list(words)}
        case inspect.IntType() | inspect.FloatType():
            bounds = {"minimum": kind.ge, "exclusiveMinimum": kind.gt, "maximum": kind.le}
            told = {name: bound for name, bound in bounds.items() if bound is not None}
            return {"type": "integer" if isinstance(kind, inspect.IntType) else "number", **told}
        case _:
            return _PLAIN[type(kind)]


_PLAIN: Mapping[type[inspect.Type], dict[str, Any]] = {
    inspect.StrType: {"type": "string"},
    inspect.BoolType: {"type": "boolean"},
    inspect.AnyType: {},
}
_WRITTEN: Mapping[str, dict[str, Any]] = {
    "duration": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]},
    "scalar": {"type": ["string", "number", "boolean"]},
}
