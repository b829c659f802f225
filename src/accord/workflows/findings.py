"""Findings about workflow files: position, code, message and fix.

`CODES` has a row for each code; the documentation prints them.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct

Severity = Literal["error", "warning", "info"]


class FindingCode(NamedTuple):
    """The severity and the meaning of a code."""

    severity: Severity
    meaning: str


CODES: Mapping[str, FindingCode] = MappingProxyType(
    {
        # the text
        "BAD_YAML": FindingCode("error", "The text is not valid YAML of the supported kind."),
        "DUPLICATE_KEY": FindingCode("error", "A key is repeated, perhaps as `timeout` and `timeoutMs`."),
        "TOO_LARGE": FindingCode("error", "The text, its nesting, or the expansion of its aliases is too large."),
        # the shape
        "UNKNOWN_KEY": FindingCode("error", "The key is unknown in its place."),
        "MISSING_KEY": FindingCode("error", "A required key is missing."),
        "EMPTY_VALUE": FindingCode("error", "A key has no value."),
        "BAD_TYPE": FindingCode("error", "A value is of the wrong type."),
        "BAD_VALUE": FindingCode("error", "A value is unknown or outside its bounds."),
        "BAD_DURATION": FindingCode(
            "error", "A time is not written as `90s`, `10m`, `1h30m`, `250ms` or a number of seconds."
        ),
        "UNSUPPORTED": FindingCode("error", "A key of agent-relay is not supported. The fix names its replacement."),
        "UNKNOWN_TEMPLATE": FindingCode("error", "`swarm: NAME` names neither a template nor a pattern."),
        # names
        "BAD_NAME": FindingCode("error", "A name is not usable in references."),
        "DUPLICATE_NAME": FindingCode("error", "Two elements of a kind have the same name."),
        "INVALID_CHANNEL_NAME": FindingCode("error", "A channel is not lower-case letters, digits and hyphens."),
        "UNKNOWN_PATTERN": FindingCode("error", "`swarm.pattern` is not a known pattern."),
        "WRONG_CAST": FindingCode("error", "The agents and steps are not those that the pattern needs."),
        "UNKNOWN_PROFILE": FindingCode("error", "`permissions.profile` is not one of `permission_profiles`."),
        # agents
        "UNKNOWN_AGENT": FindingCode("error", "A step names an unknown agent."),
        "WRONG_AGENT": FindingCode("error", "A step names an agent of the wrong runtime."),
        "NO_PROGRAM": FindingCode("error", "An agent has no program and no URL."),
        "MISSING_URL": FindingCode("error", "An A2A step or agent has no `url`, neither of its own nor of its agent."),
        "BAD_URL": FindingCode("error", "A URL is not one of http or https."),
        "BAD_AGENT": FindingCode("error", "An agent cannot be created, for example because its credential is missing."),
        "PLAIN_SECRET": FindingCode("warning", "A header has a secret in plain text."),
        "MISSING_ENV": FindingCode("error", "A run needs a variable of the environment that is not set."),
        "UNSET_VARIABLE": FindingCode("warning", "A variable of the environment is used that is not set here."),
        "NOT_PASSED": FindingCode(
            "warning", "A command uses a variable of the environment that no `env` passes to it."
        ),
        "CLI_NOT_FOUND": FindingCode("warning", "The program of an agent is not installed here."),
        "UNUSED_AGENT": FindingCode("info", "No step names the agent, and the pattern assigns no work to it."),
        "CODEX_SPARK_NON_INTERACTIVE": FindingCode("error", "A codex `spark` model does not work without a terminal."),
        "CODEX_NO_EXIT": FindingCode(
            "warning", "An interactive codex agent has no instruction for reporting that it is done."
        ),
        "CLAUDE_NO_SPAWN_GUARD": FindingCode(
            "info", "An interactive claude agent has no instruction against starting agents itself."
        ),
        "CHAIN_ON_INTERACTIVE": FindingCode(
            "warning", "A step waits for an interactive agent that has no verification."
        ),
        "NONINTERACTIVE_RELAY": FindingCode(
            "warning", "An agent without a terminal has an instruction to use relay's messages."
        ),
        "NO_REVIEW_AGENT": FindingCode("warning", "Several agents write and none of them reviews."),
        "HIGH_CONCURRENCY": FindingCode("warning", "More than four interactive agents may run at a time."),
        # steps
        "MISSING_MEMBER": FindingCode("error", "A step lacks a key that its type needs."),
        "UNUSED_MEMBER": FindingCode("error", "A step or an agent has a key without effect for its type."),
        "CONFLICT": FindingCode("error", "Two keys exclude each other."),
        "BLANK_COMMAND": FindingCode("error", "A command is blank: it would succeed without doing anything."),
        "BAD_PATTERN": FindingCode("error", "A regular expression is not valid."),
        "BAD_TIME": FindingCode("error", "A time, a schedule or a time zone is not valid."),
        "NO_TIMEOUT": FindingCode("warning", "A step that waits for an agent has no timeout."),
        "LONG_TIMEOUT": FindingCode("warning", "A timeout of days: were milliseconds meant?"),
        "UNKNOWN_CUSTOM_STEP": FindingCode("error", "`use` names an unknown custom step."),
        "BAD_PARAMS": FindingCode("error", "A custom step lacks a required parameter or has an unknown one."),
        "UNKNOWN_WORKFLOW": FindingCode("error", "A step runs an unknown workflow."),
        # order
        "UNKNOWN_DEPENDENCY": FindingCode("error", "A step depends on a name that is not a step of its workflow."),
        "CYCLE": FindingCode("error", "Steps wait for each other in a cycle."),
        "UNREACHABLE": FindingCode("warning", "A step is never run."),
        "FAN_IN": FindingCode(
            "warning", "A step waits for five others or more, whose outputs may be too much for one task."
        ),
        # values
        "BAD_TEMPLATE": FindingCode("error", "An expression between `{{` and `}}`, or in `if`, is not valid."),
        "UNKNOWN_REFERENCE": FindingCode("error", "A template names an unknown step, variable or input."),
        "UNDECLARED_VARIABLE": FindingCode(
            "warning", "A variable has no value in the file. The caller must give one to each run."
        ),
        "NOT_UPSTREAM": FindingCode("error", "A template uses the output of a step that may not have ended by then."),
        "MISSING_INPUT": FindingCode("error", "A required input is missing."),
        "BAD_INPUT": FindingCode("error", "An input has the wrong type or a value that is not allowed."),
        "NOT_FIXED": FindingCode(
            "error", "A URL, a header or an event depends on a value that is unknown before the run."
        ),
        "NOT_FILLED": FindingCode("error", "An `env` contains `${NAME}` where it is not replaced."),
        "TEMPLATE_NOT_READ": FindingCode(
            "warning", "A template stands in a text that is not a template, and stays as it is."
        ),
        "INJECTION_RISK": FindingCode("error", "The output of an agent would be read as part of a program."),
        # directories
        "UNKNOWN_WORKDIR": FindingCode("error", "`workdir` is not one of `paths`."),
        "NO_DIRECTORY": FindingCode("warning", "A working directory does not exist."),
    }
)


class TextPosition(NamedTuple):
    """A position in a text, counted from 1. With line 0 the position is unknown."""

    file: str = "<document>"
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class DocumentFinding(Struct, frozen=True, kw_only=True):
    """A finding of a document: position, code, message and fix."""

    code: str
    message: str
    fix: str
    file: str = "<document>"
    line: int = 0
    column: int = 0
    severity: Severity = "error"

    @property
    def place(self) -> TextPosition:
        """The position of the finding."""
        return TextPosition(self.file, self.line, self.column)

    def __str__(self) -> str:
        where = "" if self.place == TextPosition() else f"{self.place}: "  # a caller knows no document
        return f"{where}{self.severity} {self.code}: {self.message} ({self.fix})"


def make_finding(code: str, message: str, fix: str, place: TextPosition = TextPosition()) -> DocumentFinding:  # noqa: B008  # it is frozen
    """Return a finding with the severity of its code."""
    return DocumentFinding(code=code, message=message, fix=fix, severity=CODES[code].severity, **place._asdict())


Where = tuple[str | int, ...]


class CheckProblem(NamedTuple):
    """A problem: code, path, message and fix.

    Its position is that of the value at the path, of its key (`at_key`), or of an offset in its text (`start`).
    """

    code: str
    where: Where
    message: str
    fix: str
    at_key: bool = False
    start: int | None = None


class BadDocument(Exception):
    """A document that is not valid, with all findings. The message has one line for each."""

    def __init__(self, findings: Iterable[DocumentFinding]) -> None:
        """Store the findings in the order of the text."""
        self.findings = tuple(sorted(findings, key=lambda one: (one.file, one.line, one.column)))
        super().__init__("\n".join(map(str, self.findings)))
