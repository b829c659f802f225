"""Shell commands with templates: each template becomes a quoted variable reference.

The parser accepts what POSIX shells and bash read alike: simple commands, lists, pipes, `if`, loops, groups,
redirections to files, quotes, `$NAME` and `$(..)`. A command with templates and anything else is refused.
So a value is only ever a quoted part of an argument or of a variable. `agents.command_safety` lists the commands that
may receive values.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from accord.agents.command_safety import PROGRAMS, UnsafeCommand, Value, Word, check_simple_command, name_of

HOLE = "\0"
"""The character that replaces a template in the text of a command. A command cannot contain it otherwise."""

_KEYWORDS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}"})
"""Words after which a command starts or ends."""

_UNREAD = frozenset({"[[", "case", "coproc", "function", "select", "time"})
"""Keywords of syntax that is not supported. After `time`, some shells read a keyword."""

_CHANGING = frozenset(
    [
        "alias",
        "builtin",
        "command",
        "compgen",
        "declare",
        "enable",
        "eval",
        "hash",
        "jobs",
        "let",
        "local",
        "shopt",
        "typeset",
        "unalias",
    ],
)
"""Commands that change the meaning of later ones, read variables as code by name, or run such commands."""

_NAMING = {
    "read": re.compile(r".*[\[\0].*", re.DOTALL),
    "unset": re.compile(r".*[\[\0].*", re.DOTALL),
    "wait": re.compile(r".*\[.*|-.*p.*", re.DOTALL),
    "set": re.compile(r"[-+].*k.*|keyword", re.DOTALL),
}
"""Arguments with which these commands read a variable as code, or assign to more variables. A NUL is unknown text."""

_INTEGER = re.compile(r"(?:RANDOM|SRANDOM|HISTCMD|OPTIND|BASHPID)(?:\+?=(?![0-9]*\Z).*)?", re.DOTALL)
"""Variables whose assigned values bash evaluates as arithmetic, and so reads variables named in the value."""

_PRINTING = frozenset({"basename", "date", "dirname", "echo", "printf", "pwd"})
"""Commands allowed in `$(..)` of a command that writes a value into a file, because they read no file."""

_CONFIGURING = re.compile(
    r"(?:^|/)(?:\.(?:git|gitconfig|githooks|husky|config)(?:/|$)|hooks/[^./]*$|\0[^/]*$)|[*?\[]", re.IGNORECASE
)
"""Files by which git and gh choose programs to run, and unknown names, which contain a NUL."""

_PLAIN = frozenset(
    [
        "break",
        "cd",
        "continue",
        "date",
        "exit",
        "false",
        "for",
        "pwd",
        "read",
        "return",
        "set",
        "shift",
        "umask",
        "wait",
    ]
)
"""Commands that run no file, like `agents.command_safety.PROGRAMS`."""

_ENDS = " \t\n;&|()<>"
_REDIRECT = re.compile(r"[0-9]*(?:(?P<copy>[<>]&(?:[0-9]+|-)(?=[\s;&|)]|\Z))|(?:>>|>\||<>|>|<)(?![<>&(|]))")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|[0-9?$#!*@-])", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)
_ARRAY = re.compile(r"[A-Za-z_]\w*\[", re.ASCII)
_OWN = re.compile(r"([a-z]\w*)=", re.ASCII)
"""An assignment to a lower-case variable, which is the command's own. Programs read upper-case ones."""


class Hole(NamedTuple):
    """A template: the variable with its value, its source, and its text if the author wrote a constant."""

    variable: str
    source: str
    text: str | None = None


class ShellCommand(NamedTuple):
    """A shell command, and the words of its simple commands that contain values."""

    text: str
    commands: tuple[tuple[Word, ...], ...]


def shell_command(text: str, holes: Sequence[Hole], *, options: bool = False) -> ShellCommand:
    """Return a command with variable references in its holes; raises UnsafeCommand.

    With `options`, values may be options of the program.
    """
    reader = _ShellReader(text, holes, options)
    reader.read("")
    reader.check_names()
    reader.check_files()
    return ShellCommand("".join(reader.out), tuple(reader.commands))


class _SimpleCommand:
    def __init__(self, is_sink: bool = False) -> None:
        self.is_sink = is_sink
        self.is_group = False
        self.is_begun = False
        self.files: list[Word] = []
        self.assigned: list[Word] = []
        self.words: list[Word] = []

    @property
    def is_fresh(self) -> bool:
        """Whether a keyword or a group may come next."""
        return not (self.is_begun or self.is_group)


class _ShellReader:
    def __init__(self, text: str, holes: Sequence[Hole], options: bool) -> None:
        self.out: list[str] = []
        self.commands: list[tuple[Word, ...]] = []
        self._text, self._holes, self._options = text, holes, options
        self._has_values = any(hole.text is None for hole in holes)
        self._at = self._next_hole = self._depth = 0
        self._names: dict[str, Word] = {}
        self._used: set[str] = set()
        self._writes_value = False
        self._run: list[str] = []
        self._places: list[Word] = []
        self._reads_back = ""
        self._capitals: list[str] = []
        self._has_open_name = False

    # --- commands

    def read(self, closer: str) -> None:
        """Parse commands up to `closer`."""
        command = _SimpleCommand()
        while not self._is_next(closer) if closer else self._at < len(self._text):
            sign = self._text[self._at : self._at + 1]
            if not sign:
                self._refuse("a parenthesis is not closed")
            if sign in " \t":
                self._copy(1)
            elif self._is_next("\\\n"):
                self._continue()
            elif sign == "#":
                self._comment()
            elif sign in "\n;&|":
                command = self._operator(command)
            elif sign == "(" and command.is_fresh and not command.is_sink and not self._is_next("(("):
                self._nested("(")
                command.is_group = True
            elif (redirect := _REDIRECT.match(self._text, self._at)) is not None:
                self._redirect(command, redirect)
            elif sign in "()<>":
                self._refuse(f"what begins with `{self._text[self._at : self._at + 3].strip()}` is not read there")
            else:
                self._add(command)
        self._end(command)
        self._copy(len(closer))

    def _nested(self, signs: str) -> None:
        self._copy(len(signs))
        self.read(")")

    def _add(self, command: _SimpleCommand) -> None:
        """Parse a word of a command."""
        begin = self._at
        word = self._word()
        raw = self._text[begin : self._at]
        if command.is_group and raw not in _KEYWORDS:
            self._refuse("a word follows on a group of commands")
        if not command.is_begun and raw in _KEYWORDS:
            if command.is_sink:
                self._refuse("templates may be piped only into a simple command")
            return
        if not command.is_begun and raw in _UNREAD:
            self._refuse(f"`{raw}` is not read in a command with templates")
        if not command.words and _ARRAY.match(raw):
            self._refuse("a shell reads the place in an array as code")
        command.is_begun = True
        is_assignment = not command.words and _ASSIGNMENT.match(raw) is not None
        (command.assigned if is_assignment else command.words).append(word)

    def _operator(self, command: _SimpleCommand) -> _SimpleCommand:
        operator = next(sign for sign in ("&&", "||", "\n", ";", "&", "|") if self._is_next(sign))
        after = self._text[self._at + len(operator) : self._at + len(operator) + 1]
        if (operator in ";|" and after in (";", "&")) or (operator == "&" and after == ">"):
            self._refuse(f"`{operator}{after}` is not read alike by all shells")
        self._copy(len(operator))
        if command.is_sink and not command.is_begun and operator == "\n":
            return command  # a line ends after `|`
        self._end(command)
        return _SimpleCommand(is_sink=operator == "|" and self._has_values)

    def _end(self, command: _SimpleCommand) -> None:
        """Check a simple command at its end."""
        words = command.words
        for word in command.assigned:
            self._assign(word, is_alone=not words)
        self._check_integers([*command.assigned, *words])
        has_value = any(isinstance(piece, Value) for word in words for piece in word)
        name = name_of(words)
        if command.files and (has_value or command.is_sink or not words or name == "exec"):
            self._writes_value = True
        self._places += command.files
        if self._depth and name not in _PRINTING:
            self._reads_back = self._reads_back or "$(..)"
        if not words:
            if command.is_sink:
                self._refuse("templates may be piped only into a simple command")
            return
        if self._has_values:
            check_simple_command(words, is_sink=command.is_sink, options=self._options)
        self._check_builtin(name, words)
        self._run.append(name)
        self._has_open_name = self._has_open_name or None in words[0]
        if name == "read":
            self._reads_back = name
        if name == "tee" or (name == "uniq" and len(words) > 2):
            self._writes_value = True
        if name in ("tee", "uniq") or (name == "cd" and None not in words[-1]):
            self._places += words[1:]
        if has_value:
            self.commands.append(tuple(words))

    def _check_builtin(self, name: str, words: Sequence[Word]) -> None:
        """Refuse builtins that may read variables as code, and a `for` loop without `in`."""
        if name in _CHANGING and words[:2] != [("command",), ("-v",)]:
            self._refuse(f"`{name}` changes what the rest of it means, or may read variables as code")
        if name == "for" and len(words) > 2 and words[2] != ("in",):
            self._refuse("`for NAME do` is not read: write `for NAME in ..; do`")
        if name in _NAMING and any(_NAMING[name].fullmatch(_text_of(word)) for word in words[1:]):
            self._refuse(f"an argument of `{name}` may read a variable as code, or is not fixed")

    def _check_integers(self, words: Sequence[Word]) -> None:
        """Refuse assignments that bash evaluates as arithmetic."""
        integer = next((_text_of(word) for word in words if _INTEGER.fullmatch(_text_of(word))), None)
        if integer is not None and self._has_values:
            self._refuse(
                f"bash calculates what `{integer.partition('=')[0]}` is set to, and may read a variable as code"
            )

    def _assign(self, word: Word, *, is_alone: bool) -> None:
        """Record an assignment of a value to a variable, which then contains a value too."""
        value = next((piece for piece in word if isinstance(piece, Value)), None)
        own = _OWN.match(str(word[0]))
        name = str(word[0]).partition("=")[0]
        if value is None:
            if name in self._names:
                self._refuse(f"`{name}` has a template and is assigned to again")
            self._used.add(name)
            if _OWN.match(f"{name}=") is None:
                self._capitals.append(name)
            return
        if own is None or not is_alone or name in self._used or name in self._names:
            raise UnsafeCommand(f"{value.source} may only be assigned to a new variable in small letters, by itself")
        self._names[name] = (own.string[own.end() :], *word[1:])

    def _redirect(self, command: _SimpleCommand, redirect: re.Match[str]) -> None:
        self._copy(len(redirect[0]))
        command.is_begun = command.is_begun or not command.is_group
        if redirect["copy"]:
            return
        while self._is_next(" ") or self._is_next("\t"):
            self._copy(1)
        word = self._word()
        if not word or any(isinstance(piece, Value) for piece in word):
            self._refuse("a redirection needs the fixed name of a file")
        if redirect[0].lstrip("0123456789") != "<" and word != ("/dev/null",):
            command.files.append(word)

    def check_names(self) -> None:
        """Refuse an unknown command name if variables have values, because it could read them as code."""
        if self._names and self._has_open_name:
            self._refuse("the name of a command is not fixed, and it may read a variable as code")

    def check_files(self) -> None:
        """Refuse a command that writes a value into a file, and may run that file or use its content."""
        if not (self._writes_value and self._has_values):
            return
        for name in self._run:
            if name not in PROGRAMS and name not in _PLAIN:
                self._refuse(f"it writes a file, and `{name}` may run it")
        if self._reads_back:
            self._refuse(f"it writes a file, and `{self._reads_back}` may read it")
        if self._capitals:
            self._refuse(f"it writes a file, and programs read `{self._capitals[0]}`: use small letters")
        for place in self._places if {"git", "gh"} & set(self._run) else ():
            if _CONFIGURING.search(_text_of(place)):
                self._refuse("it writes a file, and git or gh may run that")

    # --- words

    def _word(self) -> Word:
        pieces: list[str | Value | None] = []
        bare = ""
        while self._at < len(self._text) and (sign := self._text[self._at]) not in _ENDS:
            if sign == HOLE:
                pieces += self._hole('"${NAME}"')
            elif sign == "'":
                pieces += self._single()
            elif sign == '"':
                pieces += self._double()
            elif sign == "\\":
                pieces.append(self._escaped())
            elif sign == "$":
                pieces += self._dollar(is_quoted=False)
            elif sign == "`":
                self._refuse("`..` is not read in a command with templates: write $(..)")
            else:
                bare += sign
                pieces.append(self._copy(1))
        if "{" in bare and ("," in bare or ".." in bare or self._text[self._at : self._at + 1] in ("<", ">")):
            self._refuse("braces are expanded by some shells only: quote them")
        return _merged_pieces(pieces)

    def _hole(self, form: str) -> list[str | Value | None]:
        hole = self._holes[self._next_hole]
        self._at += 1
        self._next_hole += 1
        self.out.append(form.replace("NAME", hole.variable))
        if hole.text is not None:
            return [hole.text]
        if self._depth:
            raise UnsafeCommand(f"{hole.source} cannot stand in $(..)")
        return [Value(hole.source, self._next_hole - 1)]

    def _single(self) -> list[str | Value | None]:
        """Parse single quotes. A hole is written outside of them, in double quotes of its own."""
        self._copy(1)
        pieces: list[str | Value | None] = [""]
        while not self._is_next("'"):
            if self._is_next(HOLE):
                pieces += self._hole("'\"${NAME}\"'")
            else:
                pieces.append(self._copy(1))
        self._copy(1)
        return pieces

    def _double(self) -> list[str | Value | None]:
        self._copy(1)
        pieces: list[str | Value | None] = [""]
        while not self._is_next('"'):
            if self._is_next(HOLE):
                pieces += self._hole("${NAME}")
            elif self._is_next("\\"):
                escaped = self._escaped()
                pieces.append(escaped if escaped in ("$", "`", '"', "\\") else f"\\{escaped}")
            elif self._is_next("$"):
                pieces += self._dollar(is_quoted=True)
            elif self._is_next("`"):
                self._refuse("`..` is not read in a command with templates: write $(..)")
            else:
                pieces.append(self._copy(1))
        self._copy(1)
        return pieces

    def _escaped(self) -> str:
        if self._text[self._at + 1 : self._at + 2] in ("", "\n", HOLE):
            self._refuse("a backslash stands before a template, or before the end of a line within a word")
        return self._copy(2)[1:]

    def _dollar(self, *, is_quoted: bool) -> list[str | Value | None]:
        """Parse a dollar sign and its expansion."""
        if self._is_next("$(") and not self._is_next("$(("):
            self._depth += 1
            self._nested("$(")
            self._depth -= 1
            return [None]
        parameter = _PARAMETER.match(self._text, self._at)
        if parameter is not None:
            name = parameter[1] or parameter[2] or ""
            self._copy(len(parameter[0]))
            if name == "_":
                self._refuse("`$_` is the last argument of a command, which can be a value")
            if name not in self._names:
                self._used.add(name)
                return [None]
            if not is_quoted or self._depth:
                self._refuse(f"`${name}` has a template: write it in double quotes, and not in $(..)")
            return ["", *self._names[name]]
        if self._text[self._at + 1 : self._at + 2] in ("{", "[", "(", HOLE) or (
            not is_quoted and self._text[self._at + 1 : self._at + 2] in ("'", '"')
        ):
            self._refuse(f"what begins with `{self._text[self._at : self._at + 3]}` is not read")
        return [self._copy(1)]

    # --- signs

    def _is_next(self, signs: str) -> bool:
        if self._at >= len(self._text) and signs:
            self._refuse("a quote or a parenthesis is not closed")
        return self._text.startswith(signs, self._at)

    def _copy(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        self.out.append(taken)
        return taken

    def _continue(self) -> None:
        """Parse an escaped line break between two words."""
        if self._text[self._at - 1 : self._at] not in (" ", "\t", "") or self._text[self._at + 2 : self._at + 3] == "#":
            self._refuse("a backslash at the end of a line needs a blank before it, and no `#` after it")
        self._copy(2)

    def _comment(self) -> None:
        end = self._text.find("\n", self._at)
        comment = self._text[self._at : end if end >= 0 else None]
        if HOLE in comment or self._depth:
            self._refuse("a comment cannot have templates, nor stand in $(..)")
        self._copy(len(comment))

    def _refuse(self, problem: str) -> NoReturn:
        source = next((hole.source for hole in self._holes if hole.text is None), "a template")
        raise UnsafeCommand(f"{source} cannot stand in this command: {problem.replace(HOLE, '{{..}}')}")


def _text_of(word: Word) -> str:
    """Return the text of a word, with a NUL for each unknown piece."""
    return "".join(piece if isinstance(piece, str) else "\0" for piece in word)


def _merged_pieces(pieces: Sequence[str | Value | None]) -> Word:
    """Return pieces with adjacent strings joined."""
    word: list[str | Value | None] = []
    for piece in pieces:
        if isinstance(piece, str) and word and isinstance(word[-1], str):
            word[-1] += piece
        else:
            word.append(piece)
    return tuple(word)
