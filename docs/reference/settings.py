"""The page of settings: name, value, default, variable, flag and description of each."""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from msgspec import NODEFAULT, Struct, inspect, to_builtins
from msgspec.json import encode

from accord.api.agent_types import Options
from accord.auth import scheme_settings as schemes
from accord.auth.roles import CallerRole
from accord.auth.scheme_settings import AnyScheme
from accord.cli.serve import SETTINGS
from accord.model.schemas import field_descriptions, struct_description
from accord.server import settings
from accord.server.settings import Settings
from accord.server.settings_loader import ALIASES, CREDENTIALS, FOREIGN_VARIABLES, OTHER_VARIABLES, flag_of, variable_of
from accord.server.settings_schema import SCHEMA_FILE

HEAD = f"""# Settings

This page is written by [generate.py](generate.py) from the code that reads settings. The schema for editors is
[{SCHEMA_FILE}]({SCHEMA_FILE}), which `accord config schema` prints as well. `accord config show` prints
the effective values with their sources, `accord config check` reports errors, and `accord init` writes a first file.

- **Files.** Settings are in `accord.toml`, or below `[tool.accord]` in `pyproject.toml`, in the working directory.
  Settings in both files are an error, unless `--config` or `ACCORD_CONFIG` names the file to use.
- **Precedence.** A flag overrides a variable, a variable overrides the file, and the file overrides the default.
  A variable is the setting's name with `__` for the dots: `ACCORD_SERVER__PORT=9000`. Tables are merged. All other
  values, including lists, are replaced as a whole.
- **Variables.** Write a list with commas or as JSON, and a table as JSON. `null` unsets a value, and a boolean is
  `true`, `false`, `1` or `0`. Parts of a table have variables too: `ACCORD_AGENTS__BOOKING=shop:agent`.
- **Secrets.** The text `env:NAME` stands for the value of the variable `NAME`, in any setting.
- **Names.** An unknown name is an error, reported with the nearest known name. So is an unknown variable that begins
  with `ACCORD_`, unless a setting refers to it with `env:`, or Kubernetes sets it for a service named after Accord.

A star marks required settings.
"""

WORDS = {
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.IntType: "whole number",
    inspect.FloatType: "number",
    inspect.AnyType: "anything",
}


TITLES: Mapping[type[Struct], str] = {
    settings.RemoteSettings: "remotes.NAME",
    CallerRole: "auth.roles",
    schemes.User: "Users of basic",
    schemes.Secret: "Secrets of header and hmac",
    schemes.Grant: "Clients of mtls",
    schemes.SignIn: "sign_in of jwt",
    settings.ExtensionSettings: "card.extensions",
}
"""Groups that stand in lists, or in tables of any name, and the headings of their sections."""


def page() -> str:
    """Return the page."""
    top = inspect.type_info(Settings)
    assert isinstance(top, inspect.StructType)
    plain = [field for field in top.fields if not isinstance(field.type, inspect.StructType)]
    parts = [HEAD, _section("At the top", "", "", plain, field_descriptions(Settings))]
    parts += [_group(field.name, field.type.cls) for field in top.fields if isinstance(field.type, inspect.StructType)]
    parts += [_nested("agents.NAME", Options, _about_agents()), *_schemes()]
    parts += [_nested(title, kind) for kind, title in TITLES.items()]
    parts.append(_variables())
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _about_agents() -> str:
    return (
        "Options of an agent of any type. An option that is left out has the agent's own value, or the type's default."
        " [The page of each type](../agents/README.md) and the schema describe the options that it adds. A text in"
        " place of the table is the `target`."
    )


def _schemes() -> Iterator[str]:
    """Yield the ways to authenticate, each a table of the list `auth.schemes`."""
    kinds = inspect.type_info(AnyScheme)
    assert isinstance(kinds, inspect.UnionType)
    for kind in kinds.types:
        assert isinstance(kind, inspect.StructType)
        told = f'{struct_description(kind.cls)} It is a table of `[[auth.schemes]]` with `type = "{kind.tag}"`.'
        yield _nested(f"auth.schemes of type {kind.tag}", kind.cls, told)


# --- tables -----------------------------------------------------------------------------------------------------------


def _group(name: str, kind: type[Struct]) -> str:
    """Return a section of settings that have variables, and those of its own groups."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    plain = _section(name, struct_description(kind), f"{name}.", list(info.fields), field_descriptions(kind))
    inner = [field for field in info.fields if _inside(field.type) is not None]
    return "\n".join([plain, *(_group(f"{name}.{field.name}", _inside(field.type) or Struct) for field in inner)])


def _inside(kind: inspect.Type) -> type[Struct] | None:
    """Return the group that a setting is, if it may also be left out."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else ()
    found = [one.cls for one in kinds if isinstance(one, inspect.StructType)]
    return found[0] if len(found) == 1 else None


def _section(title: str, purpose: str, before: str, fields: list[inspect.Field], said: Any) -> str:
    lines = [f"## {title}", "", *([purpose, ""] if purpose else [])]
    lines += ["| setting | value | default | variable and flag | description |", "| --- | --- | --- | --- | --- |"]
    for field in fields:
        name = before + field.name
        flags = [f"`{flag_of(name)}`"] if name in SETTINGS.values() else []
        where = "<br>".join([f"`{variable_of(name)}`", *flags])
        meaning = said.get(field.name) or purpose
        lines.append(f"| `{name}`{_star(field)} | {_value(field.type)} | {_default(field)} | {where} | {meaning} |")
    return "\n".join([*lines, ""])


def _nested(title: str, kind: type[Struct], told: str = "") -> str:
    """Return a section of settings that stand in a list, or in a table of any name."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    lines = [f"## {title}", "", told or struct_description(kind), "", "| setting | value | default | description |"]
    lines.append("| --- | --- | --- | --- |")
    for field in info.fields:
        meaning = field_descriptions(kind)[field.name]
        lines.append(f"| `{field.name}`{_star(field)} | {_value(field.type)} | {_default(field)} | {meaning} |")
    return "\n".join(lines)


def _star(field: inspect.Field) -> str:
    return "\\*" if field.required else ""


def _value(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner):
            return _value(inner)
        case inspect.EnumType(cls=cls):
            return _words(one.value for one in cls)
        case inspect.LiteralType(values=words):
            return _words(words)
        case inspect.StructType(cls=cls):
            return _link(TITLES[cls], "table") if cls in TITLES else "table"
        case inspect.UnionType(types=kinds):
            found = dict.fromkeys(_value(one) for one in kinds if not isinstance(one, inspect.NoneType))
            return " or ".join(found)
        case inspect.VarTupleType(item_type=item) | inspect.FrozenSetType(item_type=item):
            return f"list of {_value(item)}"
        case inspect.DictType(value_type=value):
            return "table" if isinstance(value, inspect.AnyType) else f"names with {_value(value)}"
        case _:
            return WORDS[type(kind)] + _bounds(kind)


def _link(title: str, text: str) -> str:
    return f"[{text}](#{title.lower().replace('.', '').replace(' ', '-')})"


def _bounds(kind: Any) -> str:
    told = [
        f"{word} {bound:g}"
        for name, word in (("ge", "at least"), ("gt", "more than"), ("le", "at most"))
        if (bound := getattr(kind, name, None)) is not None
    ]
    return f", {' and '.join(told)}" if told else ""


def _words(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _default(field: inspect.Field) -> str:
    value = field.default
    if value is NODEFAULT or value is None or value in ((), "") or isinstance(value, Struct):
        return ""
    if isinstance(value, tuple | frozenset):
        return _words(to_builtins(value))
    return f"`{value.value if isinstance(value, Enum) else encode(value).decode().strip(chr(34))}`"


# --- variables that are no setting's own name -------------------------------------------------------------------------


def _variables() -> str:
    lines = [
        "## Other variables",
        "",
        "| variable | meaning |",
        "| --- | --- |",
        *(f"| `{name}` | {meaning} |" for name, meaning in OTHER_VARIABLES.items()),
        *(
            f"| `{name}` | `{setting}`; `{variable_of(setting)}` takes precedence |"
            for name, setting in ALIASES.items()
        ),
        *(
            f"| `{name}` | `{setting}`, as named by another system; `{variable_of(setting)}` takes precedence |"
            for name, setting in FOREIGN_VARIABLES.items()
        ),
        f"| {_words(f'{prefix}*' for prefix in CREDENTIALS)} | [credentials](../how-to/credentials.md) for agents |",
    ]
    return "\n".join(lines)
