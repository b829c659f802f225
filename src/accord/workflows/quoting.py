"""Commands with holes: each becomes a reference to a variable that a shell takes for one value, whatever it holds.

It reads a command as a POSIX shell does (and bash, where that differs) only as far as is needed to know what stands
around a hole, and never sees a value. A hole is refused where no reference would be safe, or where this reading cannot
be sure; `positions` says which words a shell would run. `values` makes the holes and gives the command its variables.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, NoReturn

from accord.workflows.positions import Words, runs_its_input

HOLE = "\0"
"""Stands for a hole in the text of a command, which cannot have this character otherwise."""

AS_DATA = "give it as an argument that the command takes for data, or write it to a file: printf %s {{..}} > FILE"
"""What to do about a template that is refused."""

_DELIMITER = re.compile(r"(-?[ \t]*)(?:(\\?)([\w.+-]+)|'([\w.+-]+)'|\"([\w.+-]+)\")(?=[\s;|&)<>]|\Z)")
_SPECIAL = re.compile(r"[\\$`]")


class UnsafeCommand(ValueError):
    """A template stands where a shell would not take a value for a value; says where, and what to write."""


class Hole(NamedTuple):
    """A template in a command: the variable that has its value, how it is written, and whether its author is ours."""

    variable: str
    source: str
    is_trusted: bool = False


class _Frame:
    """Something that has begun and not ended: a substitution, a pair of quotes, the command itself.

    `spoken` are its holes, of which those from `piped_from` on may reach the next command, if that `is_fed`.
    """

    def __init__(self, kind: str, words: Words | None = None) -> None:
        self.kind = kind
        self.words = words
        self.depth = 0
        self.spoken: list[Hole] = []
        self.commands: list[list[str]] = []
        self.piped_from = 0
        self.is_fed = False


class _Document(NamedTuple):
    """A here-document that has been announced: where its delimiter was written, and how it is to be read."""

    place: int
    level: int
    before: str
    delimiter: str
    is_quoted: bool


def filled(command: str, holes: Sequence[Hole]) -> str:
    """Return a command with references in place of its holes, in their order; raises UnsafeCommand."""
    return _Reading(command, list(holes), "command").whole()


class _Reading:
    """One command, read from left to right and written again as it is read."""

    def __init__(self, text: str, holes: list[Hole], kind: str, is_clear: bool = True) -> None:
        self._text = text
        self._holes = holes
        self._at = 0
        self._out: list[str] = []
        self._frames = [_Frame(kind, Words() if kind == "command" else None)]
        self._documents: list[_Document] = []
        self.is_clear = is_clear

    def whole(self) -> str:
        """Read all of it."""
        while self._at < len(self._text):
            _READERS[self._frames[-1].kind](self, self._text[self._at])
        self._end_command()
        return "".join(self._out)

    # --- what every part needs ------------------------------------------------------------------------------------

    def _ahead(self, signs: str) -> bool:
        return self._text.startswith(signs, self._at)

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        self._out.append(taken)
        return taken

    def _push(self, kind: str, signs: str) -> None:
        self._take(len(signs))
        bare = kind in ("substitution", "subshell", "arithmetic command")
        self._frames.append(_Frame(kind, Words() if bare else None))

    def _pop(self) -> None:
        self._take()
        self._frames.pop()

    @property
    def _words(self) -> Words | None:
        """The words of the command that is being read; None in a here-document."""
        return next((frame.words for frame in reversed(self._frames) if frame.words is not None), None)

    def _say(self, text: str) -> None:
        """Remember what the current word says."""
        if self._words is not None:
            self._words.add(text)

    def _fill(self, form: str) -> None:
        """Put a reference in place of the next hole."""
        hole = self._holes.pop(0)
        self._at += 1
        if not self.is_clear:
            self._refuse(hole, "what comes before it is read differently by different shells")
        self._check(hole)
        self._say(HOLE)
        self._out.append(form.replace("NAME", hole.variable))

    def _check(self, hole: Hole, *, is_read: bool = False) -> None:
        """Refuse a hole if anything that it stands in could take its value for something else.

        What a substitution prints becomes a word of the command around it; what a subshell prints does not, and neither
        does what a command reads.
        """
        is_word = not is_read
        for frame in reversed(self._frames):
            if frame.kind in _NO_PLACES:
                self._refuse(hole, _NO_PLACES[frame.kind])
            if frame.words is not None and not hole.is_trusted:
                if is_word and (problem := frame.words.danger()):
                    self._refuse(hole, problem)
                frame.spoken.append(hole)
                is_word = frame.kind != "subshell" and (is_word or is_read)

    def _check_readers(self, holes: Iterable[Hole], commands: Iterable[list[str]]) -> None:
        """Refuse holes whose value would be read as a program by one of these commands."""
        for hole in holes:
            if not hole.is_trusted and any(map(runs_its_input, commands)):
                self._refuse(hole, "a shell would run it, reading it as its input")

    def _refuse(self, hole: Hole, problem: str) -> NoReturn:
        raise UnsafeCommand(f"{hole.source} cannot stand here: {problem}")

    def _refuse_next(self, problem: str) -> NoReturn:
        self._refuse(self._holes[0], problem)

    def _escape(self) -> None:
        """Take a backslash and what it stands before."""
        if self._text.startswith(HOLE, self._at + 1):
            self._refuse_next("a backslash stands before it")
        self._say(self._take(2)[1:])

    def _skip(self, end: int, what: str) -> None:
        """Take everything up to `end`, in which there can be no hole."""
        if HOLE in self._text[self._at : end]:
            self._refuse_next(f"it stands in {what}")
        self._say(self._take(end - self._at))

    def _backticks(self) -> None:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        self._skip(end + 1, "`..`: write $(..)")

    def _dollar(self) -> None:
        """Take a dollar and what it begins."""
        if self._text.startswith(HOLE, self._at + 1):
            self._refuse_next("a dollar stands before it")
        for signs, kind in (("$((", "arithmetic"), ("$(", "substitution"), ("${", "parameter")):
            if self._ahead(signs):
                self._say("$")
                self._push(kind, signs)
                return
        self._say(self._take())

    # --- one reader for each kind of frame ------------------------------------------------------------------------

    def _in_command(self, sign: str) -> None:
        words = self._frames[-1].words
        assert words is not None
        if sign == HOLE:
            self._fill('"${NAME}"')
        elif sign in _SIGNS:
            _SIGNS[sign](self)
        elif sign == "#" and not words.in_word:
            self._comment()
        elif sign in " \t":
            words.end_word()
            self._take()
        else:
            self._say(self._take())
            # A `)` after a pattern of `case` ends no substitution, and this reading does not follow `case`.
            if words.begins_case and any(frame.kind == "substitution" for frame in self._frames):
                self.is_clear = False

    def _in_quotes(self, sign: str) -> None:
        if sign == HOLE:
            self._fill("${NAME}")
        elif sign == '"' and self._frames[-1].kind == "quotes":
            self._pop()
        elif sign in "\\`$":
            {"\\": self._escape, "`": self._backticks, "$": self._dollar}[sign]()
        else:
            self._unclear_if(sign == "\n" and bool(self._documents))
            self._say(self._take())

    def _in_parameter(self, sign: str) -> None:
        if sign == HOLE:
            self._fill("")
        elif sign == "}":
            self._pop()
        elif sign == '"':
            self._push("quotes", sign)
        elif sign == "'" and any(frame.kind in ("quotes", "document") for frame in self._frames):
            self._unclear_if(True)
            self._take()
        elif sign in "\\`$'":
            {"\\": self._escape, "`": self._backticks, "$": self._dollar, "'": self._apostrophe}[sign]()
        else:
            self._take()

    def _in_arithmetic(self, sign: str) -> None:
        frame = self._frames[-1]
        if sign == HOLE:
            self._fill("")
        elif sign == "(":
            frame.depth += 1
            self._take()
        elif sign == ")" and not frame.depth:
            self._unclear_if(not self._ahead("))"))
            self._take()
            self._frames.pop()
            if self._ahead(")"):
                self._take()
        elif sign == ")":
            frame.depth -= 1
            self._take()
        elif sign in "\\`$":
            {"\\": self._escape, "`": self._backticks, "$": self._dollar}[sign]()
        else:
            self._unclear_if(sign in "'\"")
            self._take()

    # --- signs of a command ---------------------------------------------------------------------------------------

    def _quote(self) -> None:
        self._say("")
        self._push("quotes", '"')

    def _apostrophe(self) -> None:
        """Take what is between apostrophes: its holes stand outside of them, between quotes of their own."""
        self._say(self._take()[1:])
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == HOLE:
                self._fill("'\"${NAME}\"'")
                continue
            self._unclear_if(sign == "\n" and bool(self._documents))
            self._say(self._take())
            if sign == "'":
                return

    def _dollar_in_command(self) -> None:
        # bash knows escapes in $'..', others take it for a dollar and a text: they may not even agree where it ends.
        self._unclear_if(self._ahead("$'"))
        if self._words is not None and not self._ahead('$"'):
            self._words.expand()
        self._dollar()

    def _backticks_in_command(self) -> None:
        if self._words is not None:
            self._words.expand()
        self._backticks()

    def _open(self) -> None:
        before = self._text[self._at - 1 : self._at]
        is_arithmetic = before == "(" or self._ahead("((")
        is_file = before in ("<", ">")  # what it prints, or reads, is a word of the command around it
        self._push("arithmetic command" if is_arithmetic else "substitution" if is_file else "subshell", "(")

    def _close(self) -> None:
        frame = self._frames[-1]
        self._end_command()
        if len(self._frames) > 1:
            self._pop()
        else:
            self._take()
        if frame.kind != "substitution" and self._words is not None:
            self._words.end_group()

    def _separate(self) -> None:
        if self._ahead("&") and self._text[self._at - 1 : self._at] in ("<", ">"):  # 2>&1
            self._take()
        elif self._ahead("||"):
            self._end_command()
            self._take(2)
        elif self._ahead("|"):
            self._end_command(is_piped=True)
            self._take()
        else:
            self._end_command()
            if self._take() == "\n":
                self._read_documents()

    def _end_command(self, *, is_piped: bool = False) -> None:
        """Note that a command has ended; what is piped into the next one may be all that a group of them said."""
        frame = self._frames[-1]
        if frame.words is None:
            return
        is_reader = frame.is_fed
        is_group, words = frame.words.end_command()
        if is_reader and not words and not is_group:
            return  # a line ends after `|`
        frame.commands.append(words)
        if is_reader:
            self._check_readers(frame.spoken[frame.piped_from :], [words])
        frame.is_fed = is_piped
        if not is_piped:
            frame.piped_from = len(frame.spoken)
        elif is_group:
            frame.piped_from = 0

    def _redirect(self) -> None:
        words = self._words
        assert words is not None
        words.redirect()
        is_document = self._ahead("<<") and not self._ahead("<<<")
        if self._ahead("<") and not is_document:
            self._frames[-1].is_fed = True
        if is_document:
            self._announce()
        else:
            self._take(3 if self._ahead("<<<") else 1)

    def _comment(self) -> None:
        end = self._text.find("\n", self._at)
        rest = self._text[self._at : end if end >= 0 else len(self._text)]
        self._at += len(rest)
        for sign in rest:
            self._out.append(self._holes.pop(0).variable if sign == HOLE else sign)

    # --- here-documents -------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        self._take(2)
        found = _DELIMITER.match(self._text, self._at)
        if found is None:
            self._unclear_if(True)
            return
        before, escaped, *names = found.groups()
        delimiter = next(name for name in names if name)
        self._documents.append(
            _Document(len(self._out), len(self._frames), before, delimiter, bool(escaped or not names[0]))
        )
        self._say(self._take(len(found[0])))

    def _read_documents(self) -> None:
        for document in self._documents:
            self._unclear_if(document.level != len(self._frames))
            body, end = self._body(document)
            count = body.count(HOLE)
            holes, self._holes = self._holes[:count], self._holes[count:]
            self._check_readers(holes, self._frames[-1].commands)
            for hole in holes:
                self._check(hole, is_read=True)
            if document.is_quoted and count:
                # Between apostrophes nothing is replaced: without them everything but the holes is written as it was.
                self._out[document.place] = document.before + document.delimiter
                body = _SPECIAL.sub(r"\\\g<0>", body)
            if not document.is_quoted or count:
                body = _Reading(body, holes, "document", self.is_clear).whole()
            self._out += (body, end)
        self._documents.clear()

    def _body(self, document: _Document) -> tuple[str, str]:
        """Take the lines of a here-document, and the line that ends it."""
        begin = self._at
        while self._at < len(self._text):
            here = self._at
            line, newline, _ = self._text[here:].partition("\n")
            self._at += len(line) + len(newline)
            if (line.lstrip("\t") if document.before.startswith("-") else line) == document.delimiter:
                return self._text[begin:here], line + newline
        return self._text[begin:], ""

    def _unclear_if(self, is_unclear: bool) -> None:
        self.is_clear = self.is_clear and not is_unclear


_NO_PLACES = {
    "parameter": "it stands in ${..}",
    "arithmetic": "it stands in $((..)), where a shell would calculate with it",
    "arithmetic command": "it stands in ((..)), where a shell would calculate with it",
}
"""Kinds of frames in which there is no safe place."""

_READERS: dict[str, Callable[[_Reading, str], None]] = {
    "command": _Reading._in_command,
    "subshell": _Reading._in_command,
    "substitution": _Reading._in_command,
    "arithmetic command": _Reading._in_command,
    "quotes": _Reading._in_quotes,
    "document": _Reading._in_quotes,
    "parameter": _Reading._in_parameter,
    "arithmetic": _Reading._in_arithmetic,
}

_SIGNS: dict[str, Callable[[_Reading], None]] = {
    "\\": _Reading._escape,
    "`": _Reading._backticks_in_command,
    "$": _Reading._dollar_in_command,
    "'": _Reading._apostrophe,
    '"': _Reading._quote,
    "(": _Reading._open,
    ")": _Reading._close,
    "<": _Reading._redirect,
    ">": _Reading._redirect,
    ";": _Reading._separate,
    "&": _Reading._separate,
    "|": _Reading._separate,
    "\n": _Reading._separate,
}
