"""Options of process agents, and presets of known coding agents.

Each known coding agent has a preset, and any other command gets one made from its settings. Callers therefore treat all
commands alike. A preset follows the command's own documentation, and `args` in the settings adds to it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from accord.agents.command_environment import SERVER_VARIABLES
from accord.agents.command_safety import placeholder_problem
from accord.agents.process import formats
from accord.agents.process.formats import FORMATS, Format
from accord.agents.safe_regexes import BadRegex, compile_regex
from accord.api.agent_types import Count, Options, Seconds

PROMPT, SESSION = "{prompt}", "{session}"
"""Placeholders in arguments for the prompt and for the session."""

YES_OR_NO: Mapping[str, str] = MappingProxyType({"yes": "y", "no": "n"})
FROM_A_MENU: Mapping[str, str] = MappingProxyType({"yes": "1", "no": "\x1b"})

# Terminals are painted by moving the cursor instead of writing a blank, hence `\s*`.
QUESTIONS: tuple[str, ...] = (
    r"[\[(]\s*y(?:es)?\s*/\s*no?\b[^\])\n]*[\])]",
    r"\(y\)es\s*/\s*\(n\)o",
    r"pass(?:word|phrase)[^\n]{0,80}:\s*\z",
    r"press\s+(?:enter|return|any\s+key)",
    r"\?\s*\z",
)
"""Patterns of output that waits for an answer. They count once nothing has followed for a moment."""

_SAFE = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")


class PromptInput(Enum):
    """How a command receives its prompt."""

    ARGUMENT = "argument"
    STDIN = "stdin"
    TYPED = "typed"


class CommandMode(Struct, frozen=True, kw_only=True):
    """One way to run a command: its arguments, how it takes the prompt, and its output format (`events`, or text).

    `resume` contains the arguments to resume a session, and `begins` those to start one under a given name. Without
    either, sessions cannot be resumed. `after` comes last, with the prompt if that is an argument. `grants` is the flag
    in front of rules that grant permissions.
    """

    head: tuple[str, ...] = ()
    prompt_input: PromptInput = PromptInput.STDIN
    after: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    events: Format | None = None


class Preset(Struct, frozen=True, kw_only=True):
    """A command, with its modes without a terminal and in one.

    `install` is the command that installs it. `lost` is a pattern of its error for an unknown session. `questions` and
    `answers` are for its terminal: patterns of output that waits for an answer, and the keys for a yes or a no.
    """

    binary: str
    install: str | None = None
    headless: CommandMode
    terminal: CommandMode
    lost: str | None = None
    questions: tuple[str, ...] = QUESTIONS
    answers: Mapping[str, str] = YES_OR_NO


class CommandCall(Struct, frozen=True, kw_only=True):
    """One call of a command: its prompt, its session, and the permissions granted so far."""

    prompt: str
    session: str | None = None
    resumes: bool = False
    grants: tuple[str, ...] = ()


def build_argv(binary: str, mode: CommandMode, args: Sequence[str], call: CommandCall) -> list[str]:
    """Return the arguments of a call. The prompt comes last, protected from being parsed as a flag."""
    session = () if call.session is None else (mode.resume if call.resumes else mode.begins)
    grants = (*mode.grants, *call.grants) if mode.grants and call.grants else ()
    return [binary, *_fill((*mode.head, *args, *session), call), *grants, *_fill(mode.after, call)]


def is_session(name: str) -> bool:
    """Whether a session id of a command is safe to use as an argument."""
    return _SAFE.fullmatch(name) is not None


def _fill(arguments: Sequence[str], call: CommandCall) -> Iterator[str]:
    before = ""
    for argument in arguments:
        head, placeholder, tail = argument.partition(PROMPT)
        is_bare = argument == PROMPT and before != "--" and call.prompt.startswith("-")
        blank = " " if is_bare else ""  # callers must not set flags
        yield head.replace(SESSION, call.session or "") + (blank + call.prompt + tail if placeholder else "")
        before = argument


PRESETS: Mapping[str, Preset] = {
    "claude": Preset(
        binary="claude",
        install="npm install -g @anthropic-ai/claude-code",
        headless=CommandMode(
            head=("-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
            resume=("--resume", SESSION),
            grants=("--allowedTools",),
            events=formats.CLAUDE,
        ),
        terminal=CommandMode(
            prompt_input=PromptInput.ARGUMENT,
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
        headless=CommandMode(head=("exec", "--json"), after=("-",), resume=("resume", SESSION), events=formats.CODEX),
        terminal=CommandMode(prompt_input=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:no|unknown|could not find|failed to find)[^\n]*(?:session|thread|rollout|conversation)",
        questions=(r"Allow\s*command\s*\?", r"Would\s*you\s*like\s*to\s*(?:run|make)[^\n]*\?", *QUESTIONS[:-1]),
        answers={"yes": "y", "no": "\x1b"},
    ),
    "gemini": Preset(
        binary="gemini",
        install="npm install -g @google/gemini-cli",
        headless=CommandMode(
            head=("--output-format", "stream-json"), resume=("--resume", SESSION), events=formats.GEMINI
        ),
        terminal=CommandMode(prompt_input=PromptInput.ARGUMENT, after=(f"--prompt-interactive={PROMPT}",)),
        lost=r"(?i)(?:invalid|no)\s[^\n]*session",
        questions=(r"Apply\s*this\s*change\s*\?", r"Allow\s*execution[^\n]*\?", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "aider": Preset(
        binary="aider",
        install="pip install aider-chat",
        headless=CommandMode(
            head=("--yes-always", "--no-git", "--no-pretty", "--no-fancy-input", "--no-check-update"),
            prompt_input=PromptInput.ARGUMENT,
            after=(f"--message={PROMPT}",),
        ),
        terminal=CommandMode(
            head=("--no-pretty", "--no-fancy-input", "--no-check-update"), prompt_input=PromptInput.TYPED
        ),
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
            events=formats.GOOSE,
        ),
        terminal=CommandMode(
            head=("session",),
            prompt_input=PromptInput.TYPED,
            begins=("--name", SESSION),
            resume=("--resume", "--name", SESSION),
        ),
        lost=r"(?i)(?:no|cannot find|not found)[^\n]*session|session[^\n]*(?:not found|does not exist)",
        questions=(r"goose\s*would\s*like\s*to\s*call", *QUESTIONS[:-1]),
    ),
    "opencode": Preset(
        binary="opencode",
        install="npm install -g opencode-ai",
        headless=CommandMode(head=("run", "--format", "json"), resume=("--session", SESSION), events=formats.OPENCODE),
        terminal=CommandMode(prompt_input=PromptInput.ARGUMENT, after=(f"--prompt={PROMPT}",)),
        lost=r"(?i)session[^\n]*not found|NotFoundError",
        questions=(r"Permission\s*required", *QUESTIONS[:-1]),
    ),
    "droid": Preset(
        binary="droid",
        install="see https://docs.factory.ai",
        headless=CommandMode(
            head=("exec", "--output-format", "stream-json"),
            resume=("--session-id", SESSION),
            events=formats.DROID,
        ),
        terminal=CommandMode(prompt_input=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)session[^\n]*not found",
        questions=(r"Yes,\s*allow", *QUESTIONS[:-1]),
        answers=FROM_A_MENU,
    ),
    "cursor": Preset(
        binary="cursor-agent",
        install="see https://cursor.com/cli",
        headless=CommandMode(
            head=("-p", "--output-format", "stream-json"), resume=(f"--resume={SESSION}",), events=formats.CURSOR
        ),
        terminal=CommandMode(prompt_input=PromptInput.ARGUMENT, after=("--", PROMPT)),
        lost=r"(?i)(?:chat|session)[^\n]*not found",
        questions=(r"Run\s*this\s*command\s*\?", *QUESTIONS[:-1]),
    ),
}
"""Name -> preset."""


PresetName = Literal["claude", "codex", "gemini", "aider", "goose", "opencode", "droid", "cursor"]
FormatName = Literal["claude", "codex", "cursor", "droid", "gemini", "goose", "lines", "opencode"]


class ProcessOptions(Options, frozen=True, kw_only=True):
    """Options of a command: a preset, or any other command.

    `prompt` is how a command takes its prompt, `events` its output format instead of text, and `resume_args` the
    arguments that resume a session (`{session}`). A preset has its own values for these. In `args`, `{prompt}` stands
    for the prompt. A program that runs its arguments, such as `sh -c`, may contain it only with `allow_interpreter`. A
    command that is missing when the server starts is an error, unless `installed_later` is set.

    The command works in `directory`, or in a new one below `root` for each conversation. With `worktree`, it works in a
    worktree of `repository` for each task, from `base`. A worktree without changes is removed unless `keep_worktree` is
    set. Files in `outbox` become artifacts; by default the command is given a folder for them.

    With `mode = "pty"` the command has a terminal. `questions` are patterns of output that waits for an answer, and
    `answers` the keys to type for one. Such a process is parked for `answer_timeout` seconds. After `nudge_after`
    seconds of silence `nudge` is typed, at most `nudges` times, with `escalate_after` seconds after each. Then
    `on_idle` decides how the turn ends. `done` is a pattern of output that ends the turn.
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
        if problem := next(_problems(self), None):
            raise ValueError(problem)


def _problems(options: ProcessOptions) -> Iterator[str]:
    if (options.preset is None) is (options.command is None):
        yield f"set either a preset ({', '.join(PRESETS)}) or a command"
    if problem := _command_problem(options):
        yield problem
    if options.preset is not None and (options.prompt or options.events or options.resume_args):
        yield "a preset has its own prompt, events and resume_args: leave them out"
    if options.prompt == "typed" and options.mode != "pty":
        yield 'a prompt can only be typed into a terminal: set mode = "pty"'
    if options.prompt == "stdin" and options.mode == "pty":
        yield 'in a terminal a prompt is an argument or typed: set prompt = "typed"'
    if options.mode == "pty" and options.events:
        yield "events are read from a command without a terminal"
    if options.worktree is not (options.repository is not None):
        yield "worktree and repository need each other: set both"
    if options.worktree and options.directory is not None:
        yield "it works in the directory or in a worktree, not in both"
    for name in options.pass_env:
        if SERVER_VARIABLES.fullmatch(name):
            yield f"{name} is the server's own and is given to no command"
    for pattern in (*(options.questions or ()), *([options.done] if options.done else [])):
        if problem := _pattern_problem(pattern):
            yield problem


def _command_problem(options: ProcessOptions) -> str | None:
    """Return the error in a command and its placeholder, or None."""
    if options.command is None:
        return None
    if not _words(options.command):
        return "the command is empty"
    prompt_argument = (PROMPT,) if options.prompt == "argument" else ()
    command = (*_words(options.command), *options.args, *prompt_argument)
    return placeholder_problem(command, PROMPT, is_allowed=options.allow_interpreter)


def _pattern_problem(pattern: str) -> str | None:
    try:
        compile_regex(pattern)
    except BadRegex as error:
        return str(error)
    return None


def preset_of(options: ProcessOptions) -> Preset:
    """Return the preset of a command, with the values that the settings override."""
    preset = PRESETS[options.preset] if options.preset is not None else _custom_preset(options)
    return Preset(
        binary=options.path or preset.binary,
        install=preset.install,
        headless=preset.headless,
        terminal=preset.terminal,
        lost=preset.lost,
        questions=preset.questions if options.questions is None else options.questions,
        answers={**preset.answers, **{word.lower(): keys for word, keys in options.answers.items()}},
    )


def _custom_preset(options: ProcessOptions) -> Preset:
    binary, *words = _words(options.command or ())
    has_place = any(PROMPT in word for word in (*words, *options.args))
    prompt_input = PromptInput(
        options.prompt or ("argument" if has_place else "typed" if options.mode == "pty" else "stdin")
    )
    after = (PROMPT,) if prompt_input is PromptInput.ARGUMENT and not has_place else ()
    events = None if options.events is None else FORMATS[options.events]
    mode = CommandMode(
        head=tuple(words),
        prompt_input=prompt_input,
        after=after,
        resume=options.resume_args,
        events=events,
    )
    return Preset(binary=binary, headless=mode, terminal=mode, questions=QUESTIONS, answers=YES_OR_NO)


def _words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(shlex.split(command)) if isinstance(command, str) else command
