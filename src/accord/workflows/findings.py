"""What is wrong or remarkable about a workflow file: where, what, and how it is mended.

A finding is only said, never mended or hidden; `CODES` has a row for each code there is, which the documentation
prints. `text`, `reading`, `checks` and `plan` find, commands and servers show.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct

Severity = Literal["error", "warning", "info"]


class Row(NamedTuple):
    """What a code says of a document, and how bad that is."""

    severity: Severity
    meaning: str


CODES: Mapping[str, Row] = MappingProxyType(
    {
        # the text
        "BAD_YAML": Row("error", "The text is no YAML, or none of the kind that is read here."),
        "DUPLICATE_KEY": Row("error", "A key is there twice, perhaps once as `timeout` and once as `timeoutMs`."),
        "TOO_LARGE": Row("error", "The text, its nesting, or what its aliases stand for is too large."),
        # the shape
        "UNKNOWN_KEY": Row("error", "No such key is read there."),
        "MISSING_KEY": Row("error", "A key that must be there is not."),
        "EMPTY_VALUE": Row("error", "A key has no value."),
        "BAD_TYPE": Row("error", "A value is of the wrong type."),
        "BAD_VALUE": Row("error", "A value is none of those that are known, or outside its bounds."),
        "BAD_DURATION": Row("error", "A time is not written as `90s`, `10m`, `1h30m`, `250ms` or a number of seconds."),
        "UNSUPPORTED": Row("error", "What agent-relay has and this does not, with what to do instead."),
        "UNKNOWN_TEMPLATE": Row("error", "`swarm: NAME` names neither a template nor a pattern."),
        # names
        "BAD_NAME": Row("error", "A name that could not be referred to."),
        "DUPLICATE_NAME": Row("error", "Two of a kind have the same name."),
        "INVALID_CHANNEL_NAME": Row("error", "A channel is not lower-case letters, digits and hyphens."),
        "UNKNOWN_PATTERN": Row("error", "`swarm.pattern` is none of those that are known."),
        "WRONG_CAST": Row("error", "The agents and steps are not those that the pattern needs."),
        "UNKNOWN_PROFILE": Row("error", "`permissions.profile` is none of `permission_profiles`."),
        # agents
        "UNKNOWN_AGENT": Row("error", "An agent is named that is not among `agents`."),
        "WRONG_AGENT": Row("error", "A step wants an agent of another runtime than the one that it names."),
        "NO_PROGRAM": Row("error", "An agent says neither which program it is nor where."),
        "MISSING_URL": Row("error", "An A2A step or agent has no `url`, neither of its own nor of its agent."),
        "BAD_URL": Row("error", "A URL is not one of http or https."),
        "BAD_AGENT": Row("error", "An agent cannot be made, such as one whose credential is missing."),
        "PLAIN_SECRET": Row("warning", "A header has a secret in plain text."),
        "MISSING_ENV": Row("error", "A run needs a variable of the environment that is not set."),
        "UNSET_VARIABLE": Row("warning", "A variable of the environment is used that is not set here."),
        "NOT_PASSED": Row("warning", "A command uses a variable of the environment that no `env` passes to it."),
        "CLI_NOT_FOUND": Row("warning", "The program of an agent is not installed here."),
        "UNUSED_AGENT": Row("info", "No step names the agent, and the pattern gives it nothing to do."),
        "CODEX_SPARK_NON_INTERACTIVE": Row("error", "A codex `spark` model does not work without a terminal."),
        "CODEX_NO_EXIT": Row("warning", "An interactive codex agent is not told how to say that it is done."),
        "CLAUDE_NO_SPAWN_GUARD": Row("info", "An interactive claude agent is not told to start no agents itself."),
        "CHAIN_ON_INTERACTIVE": Row("warning", "A step waits for an interactive agent that has no verification."),
        "NONINTERACTIVE_RELAY": Row("warning", "An agent without a terminal is told to use relay's messages."),
        "NO_REVIEW_AGENT": Row("warning", "Several agents write and none of them reviews."),
        "HIGH_CONCURRENCY": Row("warning", "More than four interactive agents may run at a time."),
        # steps
        "MISSING_MEMBER": Row("error", "A step lacks what its type needs."),
        "UNUSED_MEMBER": Row("error", "A step or an agent has a member that does nothing for its type."),
        "CONFLICT": Row("error", "Two members that exclude each other are both there."),
        "BLANK_COMMAND": Row("error", "A command is blank: it would succeed without doing anything."),
        "BAD_PATTERN": Row("error", "A regular expression is none."),
        "BAD_TIME": Row("error", "A time, a schedule or a time zone is none."),
        "NO_TIMEOUT": Row("warning", "Nothing bounds how long a step that waits for an agent may take."),
        "LONG_TIMEOUT": Row("warning", "A timeout of days: were milliseconds meant?"),
        "UNKNOWN_CUSTOM_STEP": Row("error", "`use` names no step of one's own."),
        "BAD_PARAMS": Row("error", "A step of one's own is given too little, or what it does not know."),
        "UNKNOWN_WORKFLOW": Row("error", "A step runs a workflow that is not there."),
        # order
        "UNKNOWN_DEPENDENCY": Row("error", "A step depends on what is no step of its workflow."),
        "CYCLE": Row("error", "Steps wait for each other in a circle."),
        "UNREACHABLE": Row("warning", "A step is never run."),
        "FAN_IN": Row("warning", "A step waits for five others or more, whose outputs may be too much for one task."),
        # values
        "BAD_TEMPLATE": Row("error", "What stands between `{{` and `}}`, or in `if`, cannot be read."),
        "UNKNOWN_REFERENCE": Row("error", "A template names a step, a variable or an input that is not there."),
        "UNDECLARED_VARIABLE": Row("warning", "Nothing in the file says what a variable is: a run must be given it."),
        "NOT_UPSTREAM": Row("error", "A template uses the output of a step that need not have ended by then."),
        "MISSING_INPUT": Row("error", "A run is not given an input that it needs."),
        "BAD_INPUT": Row("error", "A run is given an input of the wrong type, or one that is not allowed."),
        "NOT_FIXED": Row("error", "An address, a header or an event depends on what is known only during a run."),
        "NOT_FILLED": Row("error", "An `env` names a variable as `${NAME}` where that would not be filled in."),
        "TEMPLATE_NOT_READ": Row("warning", "A template stands where none is read, and is left as it is written."),
        "INJECTION_RISK": Row("error", "What an agent says would be read as part of a program."),
        # places
        "UNKNOWN_WORKDIR": Row("error", "`workdir` is none of `paths`."),
        "NO_DIRECTORY": Row("warning", "A directory to work in is not there."),
    }
)


class Place(NamedTuple):
    """A place in a text, counted from 1; line 0 is no place in it."""

    file: str = "<document>"
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class Finding(Struct, frozen=True, kw_only=True):
    """One thing: where, which, what, and what to do about it."""

    code: str
    message: str
    fix: str
    file: str = "<document>"
    line: int = 0
    column: int = 0
    severity: Severity = "error"

    @property
    def place(self) -> Place:
        """Where it is."""
        return Place(self.file, self.line, self.column)

    def __str__(self) -> str:
        where = "" if self.place == Place() else f"{self.place}: "  # a caller knows of no document
        return f"{where}{self.severity} {self.code}: {self.message} ({self.fix})"


def found(code: str, message: str, fix: str, place: Place = Place()) -> Finding:  # noqa: B008  # it is frozen
    """Return a finding that is as bad as its code says."""
    return Finding(code=code, message=message, fix=fix, severity=CODES[code].severity, **place._asdict())


class BadDocument(Exception):
    """A document that cannot be used, with everything that was found; its text has a line for each."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        """Keep them, in the order of the text."""
        self.findings = tuple(sorted(findings, key=lambda one: (one.file, one.line, one.column)))
        super().__init__("\n".join(map(str, self.findings)))
