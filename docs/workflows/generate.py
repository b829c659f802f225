"""Writes the reference of workflow files: `reference.md` and the JSON Schema, beside this file.

Run it after a key or a code has changed; a test fails until then. Words are in the structs of files and in
`accord.workflows.findings`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct, inspect, json

from accord.workflows import agent_definition, decoder, document
from accord.workflows.decoder import MEANT, REFUSED, REFUSED_VALUES
from accord.workflows.findings import CODES
from accord.workflows.notation import format_duration
from accord.workflows.patterns import PATTERNS
from accord.workflows.schema import meanings, schema
from accord.workflows.source import SCHEMA_FILE, read_document, template_files
from accord.workflows.step_types import ALWAYS, STEP_TYPES
from accord.workflows.validation import agents
from accord.workflows.yaml_nodes import read_text

FOLDER = Path(__file__).parent

TITLES: Mapping[type[Struct], str] = {
    document.Document: "The file",
    document.Swarm: "swarm",
    document.IdleNudge: "swarm.idleNudge",
    document.Triggers: "on",
    document.Schedule: "on.schedule",
    document.Hook: "on.webhook",
    document.Input: "inputs",
    document.Path: "paths",
    agent_definition.Permissions: "agents.permissions",
    agent_definition.Files: "agents.permissions.files",
    agent_definition.FilePermissions: "permissions",
    agent_definition.AgentDef: "agents",
    agent_definition.Constraints: "agents.constraints",
    document.CustomStep: "steps",
    document.Param: "steps.params",
    document.Workflow: "workflows",
    document.Preflight: "workflows.preflight",
    document.Step: "workflows.steps",
    document.Verification: "workflows.steps.verification",
    document.Coordination: "coordination",
    document.Barrier: "coordination.barriers",
    document.SharedState: "state",
    document.ErrorHandling: "errorHandling",
    document.Trajectories: "trajectories",
}

HEAD = """# Workflow file reference

This page is written by [generate.py](generate.py) from the code that reads workflow files. The schema for editors is
[{schema}]({schema}), which `accord workflow schema` prints as well.
`accord workflow validate FILE` reports the errors of a file with their positions. Complete files are in
[examples/workflows](../../examples/workflows).

- Keys may be written in camelCase, as here, or in snake_case. An unknown key, a key without a value, and a key without
  effect for its type of step or agent are errors.
- A time is `90s`, `10m`, `1h30m`, `2d`, `250ms`, or a number of seconds. A key that ends in `Ms` (`timeoutMs` for
  `timeout`) takes a number of milliseconds, as in agent-relay. `idleThresholdSecs` takes a number of seconds.
- The text is YAML 1.2: `on`, `yes` and `no` are words. Anchors, aliases and `<<` are allowed, duplicate keys are not.
- Texts with `{{{{...}}}}` are templates.

A star marks required keys.
"""


def reference() -> str:
    """Return the page."""
    parts = [HEAD.format(schema=SCHEMA_FILE)]
    for struct, title in TITLES.items():
        parts.append(f"## {title}\n\n{_purpose(struct)}\n\n" + "\n".join(_table(struct)))
    parts += [_types(), _patterns(), _templates(), _refused(), _codes()]
    return "\n".join(part + "\n" for part in parts)


def _purpose(struct: type[Struct]) -> str:
    return " ".join((struct.__doc__ or "").split())


def _table(struct: type[Struct]) -> Iterator[str]:
    yield "| key | value | default | description |"
    yield "| --- | --- | --- | --- |"
    for field in decoder.fields_of(struct):
        star = "\\*" if field.required else ""
        default = "" if field.required else _default(field)
        meaning = meanings(struct)[field.encode_name]
        yield f"| `{field.encode_name}`{star} | {_value(decoder.without_none(field.type))} | {default} | {meaning} |"


def _value(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _WRITTEN.get(decoder.written_as(kind) or "", "text")
        case inspect.StructType(cls=cls):
            return _link(cls)
        case inspect.UnionType(types=kinds):
            return " or ".join(_value(one) for one in kinds)
        case inspect.VarTupleType(item_type=item):
            return f"list of {_value(item)}"
        case inspect.DictType(value_type=value):
            return f"names with {_value(value)}"
        case inspect.LiteralType(values=words):
            return ", ".join(f"`{word}`" for word in words)
        case _:
            return _WORDS[type(kind)]


_WRITTEN: Mapping[str, str] = {"duration": "time", "step type": ", ".join(f"`{word}`" for word in STEP_TYPES)}

_WORDS: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.AnyType: "anything",
}


def _link(struct: type[Struct]) -> str:
    title = TITLES[struct]
    return f"[{title}](#{title.lower().replace('.', '').replace(' ', '-')})"


def _default(field: inspect.Field) -> str:
    value = decoder.default_of(field)
    if value is None or value in ((), {}, "") or isinstance(value, Struct):
        return ""
    if decoder.written_as(field.type) == "duration":
        return f"`{format_duration(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _types() -> str:
    always = ", ".join(f"`{name}`" for name in ALWAYS)
    lines = [
        "## Keys by type of step and agent",
        "",
        f"Every step may have {always}, of which `name` is required. Any other key is an error.",
        "",
        "| type of step | required | optional |",
        "| --- | --- | --- |",
    ]
    for kind, row in STEP_TYPES.items():
        needs = [*(f"`{name}`" for name in row.needs), " or ".join(f"`{name}`" for name in row.either)]
        uses = ", ".join(f"`{name}`" for name in row.uses if name not in row.either)
        lines.append(f"| `{kind}` | {', '.join(filter(None, needs))} | {uses} |")
    lines += ["", "| agent | optional |", "| --- | --- |"]
    for what, names in (
        ("a command: `cli` or `command`", agents.PROCESS),
        ("a model: `cli: api`", agents.MODEL),
        ("a remote agent: `runtime: a2a`", agents.A2A),
    ):
        lines.append(f"| {what} | {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines)


def _patterns() -> str:
    lines = ["## Patterns", "", "| `swarm.pattern` | use |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| `{row.name}` | {row.when} |" for row in PATTERNS.values())])


def _templates() -> str:
    lines = [
        "## Templates",
        "",
        "`swarm: NAME` alone starts from a whole document. The file overrides its keys by their names, and its agents,",
        "workflows and steps by their `name`. Files in `.accord/workflows` and `.relay/workflows` beside a file are",
        "templates too. The package contains:",
        "",
        "| `swarm` | description |",
        "| --- | --- |",
    ]
    found = {name: read_document(read_text(file)) for name, file in template_files(FOLDER).items()}
    return "\n".join([*lines, *(f"| `{name}` | {document.description} |" for name, document in found.items())])


def _refused() -> str:
    lines = [
        "## Refused keys",
        "",
        "Keys of agent-relay and other tools that would have no effect here, and their replacements.",
        "",
        "| section | key | replacement |",
        "| --- | --- | --- |",
    ]
    rows = [(struct, f"`{key}`", fix) for (struct, key), fix in (*REFUSED.items(), *MEANT.items())]
    rows += [(struct, f"`{key}: {value}`", fix) for (struct, key, value), fix in REFUSED_VALUES.items()]
    rows.append((agent_definition.AgentDef, "`credentials: {proxy: ..}`", "write the name of a credential"))
    return "\n".join([*lines, *(f"| {_link(struct)} | {written} | {fix} |" for struct, written, fix in rows)])


def _codes() -> str:
    lines = [
        "## Findings",
        "",
        "Every finding is a line `file:line:column: severity CODE: problem (fix)`. A file with an error is not run.",
        "",
        "| code | severity | meaning |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*lines, *(f"| `{code}` | {row.severity} | {row.meaning} |" for code, row in CODES.items())])


def published() -> str:
    """Return the schema as it is published."""
    return json.format(json.encode(schema()), indent=2).decode() + "\n"


if __name__ == "__main__":
    (FOLDER / "reference.md").write_text(reference(), encoding="utf-8")
    (FOLDER / SCHEMA_FILE).write_text(published(), encoding="utf-8")
