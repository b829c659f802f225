"""The page of commands: every command, argument and option with its default, the exit codes and the variables."""

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import typer
from typer.main import get_command

from accord.cli import app
from accord.cli.failures import Exit

EXITS: Mapping[Exit, str] = {
    Exit.DONE: "done, whatever became of a task",
    Exit.FAILED: "the agent refused, a check failed, or something else went wrong",
    Exit.MISUSED: "the command was misused, or the settings are wrong",
    Exit.UNREACHABLE: "the agent, or its card, could not be reached",
    Exit.UNAUTHENTICATED: "credentials are missing or were refused",
    Exit.TIMED_OUT: "it took too long",
    Exit.WAITS: "a run of a workflow waits for an answer",
    Exit.INTERRUPTED: "Ctrl+C",
}

HEAD = """# Commands

This page is written by [generate.py](generate.py) from the commands themselves, so it says what `--help` does. How they
are used is in [the command line](../how-to/command-line.md).

`accord COMMAND --help` explains a command, `accord --version` prints the version. `accord --install-completion` sets up
completion for the shell, `accord --show-completion` prints it.
"""


def page() -> str:
    """Return the page."""
    found = list(_commands())
    parts = [HEAD, _listed(found), *(_command(path, command) for path, command in found), _exits(), _variables(found)]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def _commands() -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, by all its words; what is hidden is another name of one."""
    yield from _below(get_command(app), "accord")


def _below(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    context = typer.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        inner = f"{path} {name}"
        if hasattr(command, "list_commands"):
            yield from _below(command, inner)
        else:
            yield inner, command


def _listed(found: list[tuple[str, Any]]) -> str:
    lines = ["| command | does |", "| --- | --- |"]
    for path, command in found:
        said = _paragraphs(command)[0].rstrip(".")
        lines.append(f"| [`{path}`](#{path.replace(' ', '-')}) | {said} |")
    return "\n".join(lines)


def _command(path: str, command: Any) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *map(_usage, arguments)])
    lines = [
        f"## {path}",
        "",
        *(line for told in _paragraphs(command) for line in (told, "")),
        "```text",
        usage,
        "```",
        "",
    ]
    if arguments:
        lines += ["| argument | what it is |", "| --- | --- |"]
        lines += [f"| `{_metavar(one)}` | {_told(one)} |" for one in arguments]
        lines.append("")
    if options:
        lines += ["| option | value | default | what it does |", "| --- | --- | --- | --- |"]
        lines += [f"| {_names(one)} | {_value(one)} | {_default(one)} | {_told(one)} |" for one in options]
    return "\n".join(lines)


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]


def _usage(argument: Any) -> str:
    text = _metavar(argument) if argument.required else f"[{_metavar(argument).strip('[]')}]"
    return f"{text}..." if argument.nargs == -1 and not text.endswith("...") else text


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _value(option: Any) -> str:
    if option.is_flag:
        return ""
    kind = option.type
    if choices := getattr(kind, "choices", ()):
        text = ", ".join(f"`{one.value if isinstance(one, Enum) else one}`" for one in choices)
    else:
        text = f"`{option.metavar}`" if option.metavar else _WORDS.get(kind.name.removesuffix(" range"), "text")
    limits = (("from", getattr(kind, "min", None)), ("to", getattr(kind, "max", None)))
    bounds = [f"{word} {bound}" for word, bound in limits if bound is not None]
    return " ".join([text, *bounds]) + (", repeatable" if option.multiple else "")


_WORDS = {"int": "whole number", "integer": "whole number", "float": "number"}


def _default(option: Any) -> str:
    if isinstance(option.show_default, str):
        return option.show_default if " " in option.show_default else f"`{option.show_default}`"
    value = option.default
    if value is None or value is False or value in ((), []) or callable(value):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"


def _told(parameter: Any) -> str:
    said = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"{said} (`{parameter.envvar}`)" if parameter.envvar else said


def _exits() -> str:
    lines = [
        "## Exit codes",
        "",
        "They say whether the command did its job. Those of `accord run` and `accord runs resume` say what became of",
        "the run, see [running workflows](../workflows/running.md#exit-codes).",
        "",
        "| code | means |",
        "| --- | --- |",
    ]
    return "\n".join([*lines, *(f"| {code.value} | {EXITS[code]} |" for code in Exit)])


def _variables(found: list[tuple[str, Any]]) -> str:
    """Return the variables that stand for options; those of settings are on their own page."""
    where: dict[str, list[str]] = {}
    for path, command in found:
        for parameter in command.params:
            if parameter.envvar:
                where.setdefault(str(parameter.envvar), []).append(f"`{parameter.opts[-1]}` of `{path}`")
    lines = [
        "## Variables",
        "",
        "An option counts more than its variable. Every [setting](configuration.md) has a variable too.",
        "",
        "| variable | stands for |",
        "| --- | --- |",
    ]
    for variable, places in sorted(where.items()):
        flag = places[0].partition(" of ")[0]
        few = ", ".join(places) if len(places) <= 3 else f"{flag} of {len(places)} commands"
        lines.append(f"| `{variable}` | {few} |")
    return "\n".join(lines)
