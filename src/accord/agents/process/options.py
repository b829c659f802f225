"""Options of process agents, and presets of known coding agents.

There is one preset for each coding agent, and one is made of any other command, so that nothing above tells them apart.
A preset states what the command's own documentation states; `args` in the settings adds to it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from accord.agents.agent_types import Count, Options, Seconds
from accord.agents.command_environment import SERVER_VARIABLES
from accord.agents.command_safety import placeholder_problem
from accord.agents.process import formats
from accord.agents.process.formats import FORMATS, Format
from accord.agents.safe_regexes import BadRegex, compile_regex

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


class PromptInput(Enum):
    """How a prompt gets to a command."""

    ARGUMENT = "argument"
    STDIN = "stdin"
    TYPED = "typed"


class CommandMode(Struct, frozen=True, kw_only=True):
    """One way to run a command: what makes it so, how it takes the prompt, and what it prints (`form`, or text).

    `resume` goes on with a session, `begins` begins one under a name that it is given; without either it has none that
    could be gone on with. `after` comes last: the prompt, if it is an argument. `grants` is what rules that allow
    something are put behind.
    """

    head: tuple[str, ...] = ()
    way: PromptInput = PromptInput.STDIN
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
    headless: CommandMode
    terminal: CommandMode
    lost: str | None = None
    questions: tuple[str, ...] = QUESTIONS
    answers: Mapping[str, str] = YES_OR_NO


class CommandCall(Struct, frozen=True, kw_only=True):
    """One call of a command: what is said to it, in which session, and what it may do by now."""

    prompt: str
    session: str | None = None
    resumes: bool = False
    grants: tuple[str, ...] = ()


def build_argv(binary: str, mode: CommandMode, args: Sequence[str], call: CommandCall) -> list[str]:
    """Return the arguments of a call; the prompt comes last, after whatever keeps it from being taken for a flag."""
    session = () if call.session is None else (mode.resume if call.resumes else mode.begins)
    grants = (*mode.grants, *call.grants) if mode.grants and call.grants else ()
    return [binary, *_filled((*mode.head, *args, *session), call), *grants, *_filled(mode.after, call)]


def is_session(found: str) -> bool:
    """Whether what a command calls a session can be given back to it without being anything else."""
    return _SAFE.fullmatch(found) is not None


def _filled(arguments: Sequence[str], call: CommandCall) -> Iterator[str]:
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
        headless=CommandMode(
            head=("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            resume=("--resume", SESSION),
            grants=("--allowedTools",),
            form=formats.CLAUDE,
        ),
        terminal=CommandMode(
            way=PromptInput.ARGUMENT,
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
        headless=CommandMode(head=("exec", "--json"), after=("-",), resume=("resume", SESSION), form=formats.CODEX),
        terminal=CommandMode(way=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:no|unknown|could not find|failed to find)[^\n]*(?:session|thread|rollout|conversation)",
        questions=(r"Allow\s*command\s*\?", r"Would\s*you\s*like\s*to\s*(?:run|make)[^\n]*\?", *QUESTIONS[:-1]),
        answers={"yes": "y", "no": "\x1b"},
    ),
    "gemini": Preset(
        binary="gemini",
        install="npm install -g @google/gemini-cli",
        headless=CommandMode(
            head=("--output-format", "stream-json"), resume=("--resume", SESSION), form=formats.GEMINI
        ),
        terminal=CommandMode(way=PromptInput.ARGUMENT, after=(f"--prompt-interactive={PROMPT}",)),
        lost=r"(?i)(?:invalid|no)\s[^\n]*session",
        questions=(r"Apply\s*this\s*change\s*\?", r"Allow\s*execution[^\n]*\?", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "aider": Preset(
        binary="aider",
        install="pip install aider-chat",
        headless=CommandMode(
            head=("--yes-always", "--no-git", "--no-pretty", "--no-fancy-input", "--no-check-update"),
            way=PromptInput.ARGUMENT,
            after=(f"--message={PROMPT}",),
        ),
        terminal=CommandMode(head=("--no-pretty", "--no-fancy-input", "--no-check-update"), way=PromptInput.TYPED),
        questions=(r"\(Y\)es/\(N\)o", *QUESTIONS[:-1]),
    ),
    "goose": Preset(
        binary="goose",
        install="see https://github.com/block/goose",
        headless=CommandMode(
            head=("run", "--output-format", "stream-json"),
            begins=("--name", SESSION),
            resume=("--resume", "--name", SESSION),
            after=("--instructions", "-"),
            form=formats.GOOSE,
        ),
        terminal=CommandMode(
            head=("session",), way=PromptInput.TYPED, begins=("--name", SESSION), resume=("--resume", "--name", SESSION)
        ),
        lost=r"(?i)(?:no|cannot find|not found)[^\n]*session|session[^\n]*(?:not found|does not exist)",
        questions=(r"goose\s*would\s*like\s*to\s*call", *QUESTIONS[:-1]),
    ),
    "opencode": Preset(
        binary="opencode",
        install="npm install -g opencode-ai",
        headless=CommandMode(head=("run", "--format", "json"), resume=("--session", SESSION), form=formats.OPENCODE),
        terminal=CommandMode(way=PromptInput.ARGUMENT, after=(f"--prompt={PROMPT}",)),
        lost=r"(?i)session[^\n]*not found|NotFoundError",
        questions=(r"Permission\s*required", *QUESTIONS[:-1]),
    ),
    "droid": Preset(
        binary="droid",
        install="see https://docs.factory.ai",
        headless=CommandMode(
            head=("exec", "--output-format", "stream-json"), resume=("--session-id", SESSION), form=formats.DROID
        ),
        terminal=CommandMode(way=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)session[^\n]*not found",
        questions=(r"Yes,\s*allow", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "cursor": Preset(
        binary="cursor-agent",
        install="see https://cursor.com/cli",
        headless=CommandMode(
            head=("-p", "--output-format", "stream-json"), resume=(f"--resume={SESSION}",), form=formats.CURSOR
        ),
        terminal=CommandMode(way=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:chat|session)[^\n]*not found",
        questions=(r"Run\s*this\s*command\s*\?", *QUESTIONS[:-1]),
    ),
}
"""Name -> command."""


PresetName = Literal["claude", "codex", "gemini", "aider", "goose", "opencode", "droid", "cursor"]
FormatName = Literal["claude", "codex", "cursor", "droid", "gemini", "goose", "lines", "opencode"]


class ProcessOptions(Options, frozen=True, kw_only=True):
    """A command: one of the presets, or any other.

    `prompt` is how a command takes what is said to it, `events` what it prints instead of text, and `resume_args` what
    goes on with a session (`{session}`); a preset knows that itself. In `args`, `{prompt}` stands for the prompt, which
    a program that runs its arguments, such as `sh -c`, gets only with `allow_interpreter`. One
    that is not there when the server starts is a mistake, unless it is `installed_later`.

    It works in `directory`, or in a fresh one below `root` for each conversation, or, with `worktree`, in a worktree of
    `repository` for each task, from `base`; one without changes is removed unless `keep_worktree`. Files that it leaves
    in `outbox`, by default a folder that it is told about, are artifacts.

    With `mode = "pty"` it has a terminal. `questions` are patterns of what it waits for an answer to, `answers` what to
    type for one; such a process is held for `answer_timeout`. After `nudge_after` seconds without a word `nudge` is
    typed, at most `nudges` times, with `escalate_after` seconds after each; then `on_idle` says what becomes of it.
    `done` is a pattern that ends its work.
    """

    SECRET = frozenset({"env"})

    preset: PresetName | None = None
    command: str | tuple[str, ...] | None = None
    allow_interpreter: bool = False
    path: str | None = None
    installed_later: bool = False
    args: tuple[str, ...] = ()
    mode: Literal["headless", "pty"] = "headless"
    prompt: Literal["argument", "stdin", "typed"] | None = None
    events: FormatName | None = None
    resume_args: tuple[str, ...] = ()

    directory: str | None = None
    root: str | None = None
    keep_days: Seconds | None = 30.0
    worktree: bool = False
    repository: str | None = None
    base: str = "HEAD"
    branch: str = "accord/{task}"
    keep_worktree: bool = False

    env: dict[str, str] = field(default_factory=dict)
    pass_env: tuple[str, ...] = ()

    outbox: str | None = None
    max_files: Annotated[int, Meta(ge=0)] = 20
    max_file_bytes: Count = 10 * 1024 * 1024

    questions: tuple[str, ...] | None = None
    answers: dict[str, str] = field(default_factory=dict)
    answer_timeout: Seconds = 900.0
    nudge_after: Seconds | None = None
    escalate_after: Seconds | None = None
    nudge: str = "Please go on."
    nudges: Annotated[int, Meta(ge=0)] = 1
    on_idle: Literal["fail", "finish"] = "fail"
    done: str | None = None

    first_output: Seconds | None = None
    idle_timeout: Seconds | None = None
    output_limit: Count = 10 * 1024 * 1024
    grace: Annotated[float, Meta(ge=0, le=60)] = 2.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if problem := next(_problems(self), None):
            raise ValueError(problem)


def _problems(said: ProcessOptions) -> Iterator[str]:
    """Yield what is wrong."""
    if (said.preset is None) is (said.command is None):
        yield f"say which command it is: a preset ({', '.join(PRESETS)}) or a command, not both"
    if wrong := _wrong_command(said):
        yield wrong
    if said.preset is not None and (said.prompt or said.events or said.resume_args):
        yield "a preset knows itself how it is talked to: leave out prompt, events and resume_args"
    if said.prompt == "typed" and said.mode != "pty":
        yield 'a prompt can only be typed into a terminal: say mode = "pty"'
    if said.prompt == "stdin" and said.mode == "pty":
        yield 'in a terminal a prompt is an argument or typed: say prompt = "typed"'
    if said.mode == "pty" and said.events:
        yield "events are read from a command without a terminal"
    if said.worktree is not (said.repository is not None):
        yield "a worktree needs a repository, and a repository is there for worktrees: say both"
    if said.worktree and said.directory is not None:
        yield "it works in the directory or in a worktree, not in both"
    for name in said.pass_env:
        if SERVER_VARIABLES.fullmatch(name):
            yield f"{name} is the server's own and is given to no command"
    for pattern in (*(said.questions or ()), *([said.done] if said.done else [])):
        if wrong := _refused(pattern):
            yield wrong


def _wrong_command(said: ProcessOptions) -> str | None:
    """Return what is wrong with a command, and with the place that the prompt has in it."""
    if said.command is None:
        return None
    if not _words(said.command):
        return "the command is empty"
    last = (PROMPT,) if said.prompt == "argument" else ()
    command = (*_words(said.command), *said.args, *last)
    return placeholder_problem(command, PROMPT, is_allowed=said.allow_interpreter)


def _refused(pattern: str) -> str | None:
    try:
        compile_regex(pattern)
    except BadRegex as error:
        return str(error)
    return None


def preset_of(said: ProcessOptions) -> Preset:
    """Return the command that is meant, with what the settings say of it."""
    found = PRESETS[said.preset] if said.preset is not None else _own(said)
    return Preset(
        binary=said.path or found.binary,
        install=found.install,
        headless=found.headless,
        terminal=found.terminal,
        lost=found.lost,
        questions=found.questions if said.questions is None else said.questions,
        answers={**found.answers, **{word.lower(): keys for word, keys in said.answers.items()}},
    )


def _own(said: ProcessOptions) -> Preset:
    """Return a row for a command that has none."""
    binary, *words = _words(said.command or ())
    has_place = any(PROMPT in word for word in (*words, *said.args))
    way = PromptInput(said.prompt or ("argument" if has_place else "typed" if said.mode == "pty" else "stdin"))
    after = (PROMPT,) if way is PromptInput.ARGUMENT and not has_place else ()
    form = None if said.events is None else FORMATS[said.events]
    mode = CommandMode(head=tuple(words), way=way, after=after, resume=said.resume_args, form=form)
    return Preset(binary=binary, headless=mode, terminal=mode, questions=QUESTIONS, answers=YES_OR_NO)


def _words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(shlex.split(command)) if isinstance(command, str) else command
