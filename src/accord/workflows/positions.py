"""Where in a command a value would be run instead of used: as its name, or as an argument that is code to it.

It follows words only as far as that: a shell's own grammar is `quoting`. What other programs do with an argument is
theirs; those known to run what they are given are rows here.
"""

import re
from itertools import pairwise

KEYWORDS = frozenset({"if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "fi", "done", "esac"})
"""After these a command begins."""

CLOSERS = frozenset({"}", "fi", "done", "esac"})
"""These end a group of commands, which may be piped into another as one."""

WRAPPERS = frozenset(
    {
        "exec",
        "command",
        "builtin",
        "nohup",
        "sudo",
        "doas",
        "env",
        "nice",
        "time",
        "timeout",
        "xargs",
        "setsid",
        "stdbuf",
    }
)
"""What comes after these, and after their options, is a command again."""

EVALUATORS = frozenset(
    {
        "eval",
        ".",
        "source",
        "trap",
        "alias",
        "let",
        "declare",
        "typeset",
        "unset",
        "ssh",
        "su",
        "[[",
        "read",
        "watch",
        "parallel",
    }
)
"""Every argument of these is, or may be, run, calculated or assigned to."""

READERS = frozenset({"eval", ".", "source", "ssh", "su", "watch", "parallel"})
"""What these read may be run: they are shells elsewhere, or their arguments name one."""

EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
"""After these options of `find` there is a command, up to `;` or `{} +`."""

ASSIGNERS = frozenset({"export", "readonly", "local"})
"""A value that begins an argument of these would also choose the name."""

INTERPRETERS = frozenset(
    {
        "sh",
        "bash",
        "dash",
        "ash",
        "ksh",
        "zsh",
        "fish",
        "python",
        "node",
        "bun",
        "perl",
        "ruby",
        "php",
        "lua",
        "Rscript",
    }
)
"""The first argument of these that is no option is a program, or the file of one."""

SCRIPTED = frozenset({"sed", "gsed", "awk", "gawk", "mawk", "nawk"})
"""The first argument of these that is no option is a program that may run others."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_CODE_OPTION = re.compile(r"-[a-zA-Z]*[ceEpr]|--(eval|command|print)")
_WITH_VALUE = ("-o", "+o", "-O", "-W", "-X", "-v", "-F", "--assign", "--field-separator")
"""Options of these programs that take the next word."""
_VERSION = re.compile(r"[\d.]+$")
_MEASURE = re.compile(r"\d+[smhd]?|\d*\.\d+[smhd]?")

_VANISHING = "\1"
"""Begins a word that may come to nothing, or to several: an expansion without quotes."""


class Words:
    """The words of one simple command, as far as it has been read."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._word: str | None = None
        self._is_target = False
        self._is_group = False

    @property
    def in_word(self) -> bool:
        """Whether a word has begun."""
        return self._word is not None

    @property
    def begins_case(self) -> bool:
        """Whether the word so far is `case`, where a command may begin."""
        return self._word == "case" and not self._words

    def add(self, text: str) -> None:
        """Add to the current word."""
        self._word = (self._word or "") + text

    def expand(self) -> None:
        """Note that something without quotes is expanded, of which nothing may be left."""
        if self._word is None:
            self._word = _VANISHING

    def redirect(self) -> None:
        """Note that the next word is where something is read from or written to."""
        self.end_word()
        self._is_target = True

    def end_word(self) -> None:
        """Note that a word has ended."""
        if self._word is None:
            return
        if self._is_target:
            self._is_target = False
        elif self._word in CLOSERS and not self._words:
            self._is_group = True
        elif not self._word.startswith(_VANISHING) and (self._words or not self._is_preliminary(self._word)):
            self._words.append(self._word)
        self._word = None

    def end_command(self) -> tuple[bool, list[str]]:
        """Note that the next word is that of another command; return whether a group has ended, and the words."""
        is_group = self._is_group or self._word in CLOSERS
        self.end_word()
        words = self._own()
        self._words, self._is_target, self._is_group = [], False, False
        return is_group, words

    def end_group(self) -> None:
        """Note that commands in parentheses have ended, or a pattern of `case`: a command may begin."""
        self.end_command()
        self._is_group = True

    def danger(self) -> str | None:
        """Return why a value must not stand at the end of what was read, or None if it may."""
        if self._is_target:
            return None
        words, so_far = self._own(), self._word or ""
        if not words:
            return None if _ASSIGNMENT.match(so_far) else "it would choose which command is run"
        name = _name(words)
        if name in EVALUATORS:
            return f"`{name}` runs what it is given"
        if name in ASSIGNERS and not _ASSIGNMENT.match(so_far):
            return f"it would choose which variable `{name}` sets"
        if name in INTERPRETERS and self._is_program(words[1:]):
            return f"it would be part of a program of `{name}`: give it as an argument or as a variable instead"
        if name in SCRIPTED and self._is_script(words[1:], so_far):
            return f"it would be part of a program of `{name}`, which may run others"
        return None

    @staticmethod
    def _is_preliminary(word: str) -> bool:
        return word in KEYWORDS or _ASSIGNMENT.match(word) is not None

    def _own(self) -> list[str]:
        """Return the words without what only wraps another command."""
        words = list(self._words)
        while (wrapped := _wrapped(words)) is not None:
            words = wrapped
        return words

    @staticmethod
    def _is_program(given: list[str]) -> bool:
        """Whether an interpreter takes the current word for a program, or for the file of one: the first is."""
        return all(word.startswith(("-", "+")) for word in _arguments(given))

    @staticmethod
    def _is_script(given: list[str], so_far: str) -> bool:
        """Whether sed or awk takes the current word for a program: after -e, or as the first that is no option."""
        last = given[-1] if given else ""
        if last in ("-e", "--expression") or so_far.startswith(("-e", "--expression")):
            return True
        if last in _WITH_VALUE or so_far.startswith(("-v", "--assign")):
            return False
        has_program = any(word.startswith(("-e", "-f", "--expression", "--file")) for word in given)
        return not has_program and all(word.startswith("-") for word in _arguments(given))


def runs_its_input(words: list[str]) -> bool:
    """Whether a command takes what it reads for a program: a shell without a file, or what runs one."""
    name = _name(words)
    if name in READERS:
        return True
    rest = _arguments(words[1:])
    has_program = any(_CODE_OPTION.fullmatch(word) or word.startswith("-m") for word in rest)
    return name in INTERPRETERS and not has_program and all(word.startswith(("-", "+")) for word in rest)


def _name(words: list[str]) -> str:
    """Return which command it is: /usr/bin/python3.11 is python."""
    name = words[0].rpartition("/")[2] if words else ""
    return _VERSION.sub("", name) or name


def _wrapped(words: list[str]) -> list[str] | None:
    """Return the words of the command that another one is to run, if it is one that does.

    Which options of a wrapper take a value is not known: what follows an option may be one.
    """
    name, rest = _name(words), words[1:]
    if name == "find":
        return _executed(rest)
    if name not in WRAPPERS:
        return None
    while rest and (rest[0].startswith("-") or _ASSIGNMENT.match(rest[0]) or _MEASURE.fullmatch(rest[0])):
        is_option = rest.pop(0).startswith("-")
        if is_option and rest and not rest[0].startswith("-"):
            del rest[0]
    return rest


def _executed(words: list[str]) -> list[str] | None:
    """Return the words so far of the command that `find` is to run, if they are where it has one."""
    last = max((place for place, word in enumerate(words) if word in EXECUTING), default=None)
    if last is None:
        return None
    rest = words[last + 1 :]
    has_ended = ";" in rest or ("{}", "+") in pairwise(rest)
    return None if has_ended else rest


def _arguments(given: list[str]) -> list[str]:
    """Return words without those that belong to the option before them."""
    return [word for before, word in zip(["", *given], given, strict=False) if before not in _WITH_VALUE]
