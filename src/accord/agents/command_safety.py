"""Check that values from outside are data, not code, to a program.

A command is a list of words, and a word a list of pieces: literal text, values, and unknown text. Nothing is started
here. `workflows.shell_syntax` makes words from a shell command; `argv` and the commands of agents are words already.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

USE_ARGV = 'use `argv`, which no shell reads: argv: [PROGRAM, "{{..}}"], and a step for each program'
OWN_ARGUMENT = "write it as an argument of its own, write `--` before it, or say `allowOptions: true`"
ALLOW_INTERPRETER = "give it to a script of your own, or say `allowInterpreter: true` if the program may run it"
FIXED_PROGRAM = "write the name of the program"


class UnsafeCommand(ValueError):
    """A value from outside would be code or an option; `fix` is the remedy."""

    def __init__(self, problem: str, fix: str = USE_ARGV) -> None:
        super().__init__(problem)
        self.fix = fix


class Value(NamedTuple):
    """A value from outside in a word: its source text, and its index among the values of the command."""

    source: str
    place: int


Word = tuple[str | Value | None, ...]
"""Literal text, values, and None for unknown text."""


class Program(NamedTuple):
    """A program that treats its arguments as data."""

    options: re.Pattern[str] | None = None
    """Options that it may have beside a value; None for all, because none of them runs code."""

    verbs: frozenset[str] = frozenset()
    """Subcommands that it may have, if it has any."""

    takes_values: bool = True
    """Whether a value may be an argument."""

    is_sink: bool = False
    """Whether a value may be piped into it."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _options(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"--|{pattern}")


_GIT = Program(
    _options(
        r"-[a-np-zA-Z0-9]+|--(abbrev-ref|after|all|allow-empty|amend|author|before|cached|contains|count|date|delete|depth|"
        r"ff-only|force|force-with-lease|format|grep|hard|is-ancestor|list|max-count|merged|message|mixed|name-only|"
        r"name-status|no-edit|no-ff|no-verify|oneline|porcelain|pretty|prune|quiet|set-upstream|short|signoff|since|soft|"
        r"squash|staged|stat|tags|track|until|verbose|verify)"
    ),
    _words(
        "add blame branch checkout cherry-pick commit describe diff fetch log ls-files merge merge-base push reset "
        "restore rev-list rev-parse revert rm shortlog show show-ref status switch tag"
    ),
)
_GH = Program(
    _options(
        r"-[abBdFHlmRst]|--(add-label|assignee|base|body|body-file|draft|fill|head|json|label|limit|milestone|notes|repo|"
        r"reviewer|state|title)"
    ),
    _words("issue pr release"),
)
_CURL = Program(
    _options(
        r"-[dfFgHikLmsSTuX]+|--(data|data-binary|data-raw|data-urlencode|fail|header|json|location|max-time|request|retry|"
        r"show-error|silent)"
    )
)
_TEST = Program(_options(r"-(?![vR]$)[a-zA-Z]{1,2}"))

PROGRAMS: Mapping[str, Program] = {
    **dict.fromkeys(_words(": basename dirname echo ls mkdir rm rmdir sleep stat touch true"), Program()),
    **dict.fromkeys(
        _words("base64 cat cmp cut diff egrep fgrep fold grep head md5sum nl rev sha256sum tac tail tr wc"),
        Program(is_sink=True),
    ),
    "[": _TEST,
    "test": _TEST,
    "printf": Program(_options("$^")),
    "sort": Program(_options(r"-[a-np-zA-Z0-9,.]+"), is_sink=True),
    "curl": _CURL,
    "git": _GIT,
    "gh": _GH,
    "jq": Program(_options(r"-[acCejMnrRsS]+|--arg|--argjson"), takes_values=False, is_sink=True),
    "tee": Program(takes_values=False, is_sink=True),
    "uniq": Program(takes_values=False, is_sink=True),
}
"""Programs that accept values as arguments in a shell command."""

EVALUATING = _words("[ test printf")
"""Programs with options that read variables by name. A value can be in such a name."""

INTERPRETERS = _words(
    # shells and languages
    """
    sh bash dash ash ksh mksh zsh fish csh tcsh busybox pwsh powershell python pypy ipython node deno bun perl ruby php
    lua luajit tclsh wish expect Rscript guile awk gawk mawk nawk sed gsed m4 ed ex vi vim nvim emacs gdb lldb dc
    gnuplot sqlite psql mysql osascript erl elixir iex julia octave racket sbcl scala swift mono tcc tsx ts-node go
    ansible cmd eval exec source . trap
    """
    # what runs another program
    """
    env xargs parallel find fd ssh sshpass rsync su sudo doas runuser pkexec chroot nsenter unshare setpriv nohup nice
    ionice chrt taskset timeout time stdbuf setsid flock watch script screen tmux at batch crontab systemd-run strace
    ltrace valgrind perf docker podman nerdctl kubectl oc lxc make gmake ninja just rake npm npx pnpm yarn bunx pip uv
    uvx pipx poetry pipenv conda tar zip split man less nc ncat socat scp sftp bwrap firejail sg newgrp entr hyperfine
    nix direnv vagrant ld.so fakeroot xvfb-run ssh-agent tini dumb-init gosu setarch linux32 linux64 prlimit choom
    docker-compose podman-compose crictl apptainer singularity machinectl lxc-attach ansible-playbook ansible-console
    ansible-pull apt apt-get dpkg rpm dnf yum zypper apk brew gem flatpak ldd groovy irb ghci runghc ocaml
    jshell nodemon concurrently cross-env
    numactl dbus-run-session coverage unbuffer rlwrap ifne chronic pee faketime run-parts start-stop-daemon ip mise fzf
    cmake java cargo gradle mvn bazel dotnet xterm logrotate -exec -execdir -ok -okdir
    """
)
"""Programs that run their arguments, or may: a value among them needs `allowInterpreter`. No such list is complete."""

SCRIPTED = _words("sh bash dash ash ksh mksh zsh python pypy node perl ruby php lua Rscript")
"""Interpreters that run the file in their first argument."""

_CODE_OPTION = re.compile(
    r"-c|-e|-E|-eval|--(checkpoint-action|command|compress-program|config-env|diff-cmd|editor|editor-cmd|eval|exec|exec-path|execute|"
    r"hostname-bin|import|info-script|init-file|loader|pager|password-command|post-renderer|pre|preview|rcfile|receive-pack|require|rsh|"
    r"shell|strip-program|to-command|upload-pack|use-askpass|use-compress-program)"
)
"""Options whose argument is run by any program that has them."""

_PYTHON_FLAGS = re.compile(r"-[BEIOSqsu]+")
_SYSTEM = re.compile(r"^(/usr)?/bin/(?=[^/]+$)")
_VERSION = re.compile(r"(?<=[a-z])[\d.]+$")


def check_arguments(words: Sequence[Word], *, options: bool = False, interpreter: bool = False) -> None:
    """Raise UnsafeCommand if a value among a program's arguments may be code.

    `options` and `interpreter` are the permissions of the step.
    """
    first = _first(words)
    if first is None:
        return
    if _values(words[0]):
        raise UnsafeCommand(f"{first.source} would choose which program is run", FIXED_PROGRAM)
    if not options:
        _check_options(words)
    if interpreter:
        return
    name = name_of(words)
    if name in PROGRAMS:
        _check_program(name, words, first)
        return
    is_script = _runs_file(name, words)
    for at, word in enumerate(words):
        found = _base(_text(word) or "")
        if found in INTERPRETERS and not (is_script and at == 0):
            raise UnsafeCommand(f"`{found}` may run {first.source}", ALLOW_INTERPRETER)
        value = _first([word])
        written = (_text(words[at - 1]) or "" if at else "", _lead(word).partition("=")[0])
        if value is not None and not is_script and any(_CODE_OPTION.fullmatch(one) for one in written):
            raise UnsafeCommand(f"`{name}` may run {value.source}", ALLOW_INTERPRETER)


def placeholder_problem(command: Sequence[str], placeholder: str, *, is_allowed: bool = False) -> str | None:
    """Return why the value of `placeholder` in an agent's command would be code to its program, or None.

    `is_allowed` is `allow_interpreter` of the agent's settings.
    """
    words: list[Word] = []
    for text in command:
        pieces: list[str | Value] = []
        for part in text.split(placeholder):
            pieces += [part, Value(placeholder, 0)]
        words.append(tuple(piece for piece in pieces[:-1] if piece != ""))
    try:
        check_arguments(words, interpreter=is_allowed)
    except UnsafeCommand as error:
        return f"{error}: leave it out, so that it is the standard input, or say allow_interpreter = true"
    return None


def check_simple_command(words: Sequence[Word], *, is_sink: bool, options: bool = False) -> None:
    """Raise UnsafeCommand if a value may be code to one simple command of a shell.

    `is_sink` is true if a value is piped into the command.
    """
    first = _first(words)
    if first is not None and _values(words[0]):
        raise UnsafeCommand(f"{first.source} would choose which command is run")
    name = name_of(words)
    row = PROGRAMS.get(name)
    shown = f"`{name}`" if name else "a command whose name is not fixed"
    if is_sink and (row is None or not row.is_sink):
        raise UnsafeCommand(f"{shown} is not among the commands that templates may be piped into")
    if first is not None and (row is None or not row.takes_values):
        raise UnsafeCommand(f"{shown} is not among the commands that take {first.source} for data in a shell")
    if name == "printf" and any(map(_values, words[1:-1])) and _values(words[2 if words[1] == ("--",) else 1]):
        raise UnsafeCommand("`printf` may set a variable with a value as its format", "write a format, such as '%s'")
    if row is not None and (first is not None or is_sink or name in EVALUATING):
        _check_program(name, words, first)
    if first is not None and not options:
        _check_options(words)


def option_value(words: Sequence[Word], values: Sequence[str]) -> Value | None:
    """Return the first value that a program would read as an option, or None."""
    for word in words[1 : _operands(words)]:
        text, first = "", None
        for piece in word:
            if piece is None:
                continue  # it may be empty
            if first is None and piece != "" and isinstance(piece, str):
                break
            first = first or (piece if isinstance(piece, Value) else None)
            text += piece if isinstance(piece, str) else values[piece.place]
            if text:
                break
        if first is not None and text.startswith("-"):
            return first
    return None


def name_of(words: Sequence[Word]) -> str:
    """Return the name of a program: python3.11 is python, /usr/bin/git is git, and ./git is not."""
    name = (_text(words[0]) or "") if words else ""
    base = _base(name)
    return base if base in INTERPRETERS else _SYSTEM.sub("", name)


def _runs_file(name: str, words: Sequence[Word]) -> bool:
    """Whether an interpreter runs a fixed file, so that all later arguments are data."""
    texts = [_text(word) or "" for word in words[1:]]
    while name == "python" and texts and _PYTHON_FLAGS.fullmatch(texts[0]):
        del texts[0]
    file = texts[0] if texts else ""
    return name in SCRIPTED and not file.startswith("-") and ("." in file or "/" in file)


def _base(name: str) -> str:
    base = name.rpartition("/")[2]
    return _VERSION.sub("", base) or base


def _check_program(name: str, words: Sequence[Word], first: Value | None) -> None:
    """Raise unless a listed program has only harmless options and subcommands."""
    row, what = PROGRAMS[name], first.source if first is not None else "what it reads"
    verb = (_text(words[1]) or "") if len(words) > 1 else ""
    if row.verbs and verb not in row.verbs:
        raise UnsafeCommand(f"`{name} {verb}` may run {what}", ALLOW_INTERPRETER)
    if row.options is None:
        return
    operands = _operands(words)
    for word, after in pairwise(words[1 : operands + 1]):
        if name in EVALUATING and [piece for piece in word if piece != ""][:1] == [None] and _values(after):
            raise UnsafeCommand(f"`{name}` may read an unknown word as an option before {what}", OWN_ARGUMENT)
    for word in words[1 : operands if name == "printf" else None]:
        if _text(word) == "--" and row is not _TEST:
            return
        option = _lead(word).partition("=")[0]
        if option.startswith("-") and not row.options.fullmatch(option):
            raise UnsafeCommand(f"`{name} {option}` may run {what}", ALLOW_INTERPRETER)


def _check_options(words: Sequence[Word]) -> None:
    """Raise if a value is part of an option that starts with literal text.

    Unknown text may be empty, which matters for programs with options that run code.
    """
    row = PROGRAMS.get(name_of(words))
    may_be_empty = row is None or row.options is not None
    for word in words[1 : _operands(words)]:
        lead = _lead(tuple(piece for piece in word if piece is not None) if may_be_empty else word)
        if (found := _first([word])) is not None and re.fullmatch(r"-[^\s=]*", lead):
            where = " where what stands before it is empty" if None in word else ""
            raise UnsafeCommand(f"{found.source} would be a part of the option `{lead}`{where}", OWN_ARGUMENT)


def _operands(words: Sequence[Word]) -> int:
    """Return the index from which no word is an option. Options of `echo` and of comparisons run nothing."""
    texts = [_text(word) for word in words]
    match texts:
        case ["echo", *_]:
            return 1
        case ["printf", str(form), *_] if not form.startswith("-"):
            return 2
        case ["[", str(), _, "]"] | ["[", _, str(), _, "]"] | ["test", str(), _] | ["test", _, str(), _]:
            return 1
    return texts.index("--") if "--" in texts else len(texts)


def _text(word: Word) -> str | None:
    """Return the text of a word, or None if a piece is not known."""
    return "".join(map(str, word)) if all(isinstance(piece, str) for piece in word) else None


def _lead(word: Word) -> str:
    """Return the literal text at the start of a word."""
    lead = ""
    for piece in word:
        if not isinstance(piece, str):
            break
        lead += piece
    return lead


def _values(word: Word) -> list[Value]:
    return [piece for piece in word if isinstance(piece, Value)]


def _first(words: Iterable[Word]) -> Value | None:
    return next((value for word in words for value in _values(word)), None)
