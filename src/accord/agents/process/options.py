"""What settings say about an agent that is a command, and the command that they make of it.

Only values: what is wrong with them is said here, once, when they are read. `agent` stands above.
"""

import shlex
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, field

from accord.agents.environment import OURS
from accord.agents.kinds import Count, Options, Seconds
from accord.agents.process.formats import FORMATS
from accord.agents.process.presets import PRESETS, PROMPT, QUESTIONS, YES_OR_NO, Mode, Preset, Way
from accord.agents.programs import placeholder_problem
from accord.agents.regexes import BadRegex, compiled

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
        if OURS.fullmatch(name):
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
        compiled(pattern)
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
    way = Way(said.prompt or ("argument" if has_place else "typed" if said.mode == "pty" else "stdin"))
    after = (PROMPT,) if way is Way.ARGUMENT and not has_place else ()
    form = None if said.events is None else FORMATS[said.events]
    mode = Mode(head=tuple(words), way=way, after=after, resume=said.resume_args, form=form)
    return Preset(binary=binary, headless=mode, terminal=mode, questions=QUESTIONS, answers=YES_OR_NO)


def _words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(shlex.split(command)) if isinstance(command, str) else command
