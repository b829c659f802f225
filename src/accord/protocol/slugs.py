"""Names of agents as parts of addresses: words that need no encoding, and the same for the same name at all times.

A name in Latin letters becomes its words. One in another script would lose all of them, and two such names would become
the same, so it is written as it would be in the name of a host (punycode, RFC 3492): whatever is Latin in it stays
readable. Who refuses two agents of one name is above.
"""

import re
from unicodedata import category, name, normalize

NAMELESS = "agent"
"""What stands for a name that has nothing to read in any script."""

PREFIX = "xn--"
"""How names of hosts begin that are written so (RFC 5890), and no name of Latin words."""

_KEPT = frozenset("LMNS")
"""What is kept beyond ASCII: letters, marks, numbers and symbols. The rest separates."""


def slug(text: str) -> str:
    """Return a name as a part of a path: lower-case letters and digits of ASCII, and hyphens."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    folded = normalize("NFKC", text).lower()
    if words and not any(map(_is_foreign, folded)):
        return words
    label = "-".join("".join(char if _is_kept(char) else " " for char in folded).split())
    return (label if label.isascii() else PREFIX + label.encode("punycode").decode()) or NAMELESS


def _is_foreign(char: str) -> bool:
    """Whether a character is a letter of another script: symbols and accents are in Latin names as well."""
    return category(char).startswith("L") and not name(char, "").startswith("LATIN")


def _is_kept(char: str) -> bool:
    return char.isalnum() if char.isascii() else category(char)[0] in _KEPT
