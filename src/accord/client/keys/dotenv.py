"""Reading `.env` files: names and values, one to a line, with quotes and comments as shells and others write them.

Nothing is looked up: a `${NAME}` in a value stays as it is, since a secret may contain one. What the names mean is
`variables`.
"""

import re

from accord.client.keys.credential import KeyManagementError

_LINE = re.compile(
    r"""[^\S\n]*(?:export[^\S\n]+)?
        (?P<name>[^=\#\s'"]+)[^\S\n]*=[^\S\n]*
        (?:'(?P<single>(?:\\.|[^'\\])*)'|"(?P<double>(?:\\.|[^"\\])*)"|(?P<bare>[^'"\n][^\n]*|(?=\n|\Z)))
        [^\S\n]*(?:\#[^\n]*)?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"[^\S\n]*(?:\#[^\n]*)?(?:\n|\Z)")
_COMMENT = re.compile(r"\s+#.*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "t": "\t", "r": "\r"}


def read(text: str) -> dict[str, str]:
    """Return the values by name; of a name that is there twice, the last."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _EMPTY.match(text, position) or _LINE.match(text, position)
        if match is None:
            number = text.count("\n", 0, position) + 1
            raise KeyManagementError(f"Line {number} is not NAME=value")  # without the line: it may be a secret
        if match.re is _LINE:
            found[match["name"]] = _value(match)
        position = match.end()
    return found


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPED.sub(lambda one: _MEANT.get(one[1], one[1] if one[1] in "\\\"'" else one[0]), match["double"])
    if match["single"] is not None:
        return _ESCAPED.sub(lambda one: one[1] if one[1] in "\\'" else one[0], match["single"])
    return _COMMENT.sub("", match["bare"]).strip()
