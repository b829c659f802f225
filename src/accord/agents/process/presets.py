"""The coding agents that are known: how each is called, continued, read and answered.

One row for each, and one is made of any other command, so that nothing above tells them apart. A row says what the
commands' own documentation does; `args` in the settings adds what else they take. What they print is `formats`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType

from msgspec import Struct

from accord.agents.process import formats
from accord.agents.process.seen import Format

PROMPT, SESSION = "{prompt}", "{session}"
"""What stands in arguments for the prompt and for the session."""

YES_OR_NO: Mapping[str, str] = MappingProxyType({"yes": "y", "no": "n"})
FROM_A_MENU: Mapping[str, str] = MappingProxyType({"yes": "1", "no": "\x1b"})

# Terminals are painted by moving the cursor where one would write a blank, hence `\s*`.
QUESTIONS: tuple[str, ...] = (
    r"[\[(]\s*y(?:es)?\s*/\s*no?\b[^\])\n]*[\])]",
    r"\(y\)es\s*/\s*\(n\)o",
    r"pass(?:word|phrase)[^\n]{0,80}:\s*\z",
    r"press\s+(?:enter|return|any\s+key)",
    r"\?\s*\z",
)
"""What a command shows that waits for an answer; it counts once nothing has come after it for a moment."""

_SAFE = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")


class Way(Enum):
    """How a prompt gets to a command."""

    ARGUMENT = "argument"
    STDIN = "stdin"
    TYPED = "typed"


class Mode(Struct, frozen=True, kw_only=True):
    """One way to run a command: what makes it so, how it takes the prompt, and what it prints (`form`, or text).

    `resume` goes on with a session, `begins` begins one under a name that it is given; without either it has none that
    could be gone on with. `after` comes last: the prompt, if it is an argument. `grants` is what rules that allow
    something are put behind.
    """

    head: tuple[str, ...] = ()
    way: Way = Way.STDIN
    after: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    form: Format | None = None


class Preset(Struct, frozen=True, kw_only=True):
    """A command: without a person at its terminal, and with one.

    `install` is how it comes onto a machine. `lost` is what it says of a session that it does not know (any more);
    `questions` and `answers` are for its terminal: what waits for an answer, and what to type for a yes or a no.
    """

    binary: str
    install: str | None = None
    headless: Mode
    terminal: Mode
    lost: str | None = None
    questions: tuple[str, ...] = QUESTIONS
    answers: Mapping[str, str] = YES_OR_NO


class Call(Struct, frozen=True, kw_only=True):
    """One call of a command: what is said to it, in which session, and what it may do by now."""

    prompt: str
    session: str | None = None
    resumes: bool = False
    grants: tuple[str, ...] = ()


def argv(binary: str, mode: Mode, args: Sequence[str], call: Call) -> list[str]:
    """Return the arguments of a call; the prompt comes last, after whatever keeps it from being taken for a flag."""
    session = () if call.session is None else (mode.resume if call.resumes else mode.begins)
    grants = (*mode.grants, *call.grants) if mode.grants and call.grants else ()
    return [binary, *_filled((*mode.head, *args, *session), call), *grants, *_filled(mode.after, call)]


def is_session(found: str) -> bool:
    """Whether what a command calls a session can be given back to it without being anything else."""
    return _SAFE.fullmatch(found) is not None


def _filled(arguments: Sequence[str], call: Call) -> Iterator[str]:
    before = ""
    for argument in arguments:
        name, found, rest = argument.partition(PROMPT)
        is_bare = argument == PROMPT and before != "--" and call.prompt.startswith("-")
        blank = " " if is_bare else ""  # whoever asks must not set flags
        yield name.replace(SESSION, call.session or "") + (blank + call.prompt + rest if found else "")
        before = argument


PRESETS: Mapping[str, Preset] = {
    "claude": Preset(
        binary="claude",
        install="npm install -g @anthropic-ai/claude-code",
        headless=Mode(
            head=("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            resume=("--resume", SESSION),
            grants=("--allowedTools",),
            form=formats.CLAUDE,
        ),
        terminal=Mode(
            way=Way.ARGUMENT,
            after=("--", PROMPT),
            begins=("--session-id", SESSION),
            resume=("--resume", SESSION),
        ),
        lost=r"No conversation found",
        questions=(r"Do\s*you\s*want\s*to[^\n]*\?", r"1\.\s*Yes\b", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "codex": Preset(
        binary="codex",
        install="npm install -g @openai/codex",
        headless=Mode(head=("exec", "--json"), after=("-",), resume=("resume", SESSION), form=formats.CODEX),
        terminal=Mode(way=Way.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:no|unknown|could not find|failed to find)[^\n]*(?:session|thread|rollout|conversation)",
        questions=(r"Allow\s*command\s*\?", r"Would\s*you\s*like\s*to\s*(?:run|make)[^\n]*\?", *QUESTIONS[:-1]),
        answers={"yes": "y", "no": "\x1b"},
    ),
    "gemini": Preset(
        binary="gemini",
        install="npm install -g @google/gemini-cli",
        headless=Mode(head=("--output-format", "stream-json"), resume=("--resume", SESSION), form=formats.GEMINI),
        terminal=Mode(way=Way.ARGUMENT, after=(f"--prompt-interactive={PROMPT}",)),
        lost=r"(?i)(?:invalid|no)\s[^\n]*session",
        questions=(r"Apply\s*this\s*change\s*\?", r"Allow\s*execution[^\n]*\?", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "aider": Preset(
        binary="aider",
        install="pip install aider-chat",
        headless=Mode(
            head=("--yes-always", "--no-git", "--no-pretty", "--no-fancy-input", "--no-check-update"),
            way=Way.ARGUMENT,
            after=(f"--message={PROMPT}",),
        ),
        terminal=Mode(head=("--no-pretty", "--no-fancy-input", "--no-check-update"), way=Way.TYPED),
        questions=(r"\(Y\)es/\(N\)o", *QUESTIONS[:-1]),
    ),
    "goose": Preset(
        binary="goose",
        install="see https://github.com/block/goose",
        headless=Mode(
            head=("run", "--output-format", "stream-json"),
            begins=("--name", SESSION),
            resume=("--resume", "--name", SESSION),
            after=("--instructions", "-"),
            form=formats.GOOSE,
        ),
        terminal=Mode(
            head=("session",), way=Way.TYPED, begins=("--name", SESSION), resume=("--resume", "--name", SESSION)
        ),
        lost=r"(?i)(?:no|cannot find|not found)[^\n]*session|session[^\n]*(?:not found|does not exist)",
        questions=(r"goose\s*would\s*like\s*to\s*call", *QUESTIONS[:-1]),
    ),
    "opencode": Preset(
        binary="opencode",
        install="npm install -g opencode-ai",
        headless=Mode(head=("run", "--format", "json"), resume=("--session", SESSION), form=formats.OPENCODE),
        terminal=Mode(way=Way.ARGUMENT, after=(f"--prompt={PROMPT}",)),
        lost=r"(?i)session[^\n]*not found|NotFoundError",
        questions=(r"Permission\s*required", *QUESTIONS[:-1]),
    ),
    "droid": Preset(
        binary="droid",
        install="see https://docs.factory.ai",
        headless=Mode(
            head=("exec", "--output-format", "stream-json"), resume=("--session-id", SESSION), form=formats.DROID
        ),
        terminal=Mode(way=Way.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)session[^\n]*not found",
        questions=(r"Yes,\s*allow", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "cursor": Preset(
        binary="cursor-agent",
        install="see https://cursor.com/cli",
        headless=Mode(
            head=("-p", "--output-format", "stream-json"), resume=(f"--resume={SESSION}",), form=formats.CURSOR
        ),
        terminal=Mode(way=Way.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:chat|session)[^\n]*not found",
        questions=(r"Run\s*this\s*command\s*\?", *QUESTIONS[:-1]),
    ),
}
"""Name -> command."""
