"""PromQL as far as our dashboard and alarms use it: read by its grammar, each name and label held to what there is.

What is none is a ValueError with its place. It evaluates nothing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

AGGREGATIONS = frozenset({"sum", "max", "min", "avg", "count"})
FUNCTIONS: Mapping[str, int] = {
    "rate": 1,
    "increase": 1,
    "histogram_quantile": 2,
    "last_over_time": 1,
    "absent": 1,
    "clamp_min": 2,
    "changes": 1,
}
"""Function -> how many arguments it takes."""

RANGED = frozenset({"rate", "increase", "last_over_time", "changes"})
EVERYWHERE = frozenset({"job", "instance", "worker"})
"""Labels that Prometheus adds, and the one that processes of one address have."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[a-zA-Z_:][\w:]*)|(?P<number>\d+(?:\.\d+)?)|(?P<string>"(?:[^"\\]|\\.)*")
        |(?P<range>\[(?:\d+[smhd]|\$__rate_interval|\$__range)\])|(?P<op>=~|!~|!=|>=|<=|==|[-+*/(){},=<>]))""",
    re.VERBOSE,
)
_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})


class Token(NamedTuple):
    """A word of the language."""

    kind: str
    text: str


class Query:
    """One expression; `used` are the names of its series."""

    def __init__(self, text: str, known: Mapping[str, Iterable[str]]) -> None:
        """Read an expression over series that are `known`, by their labels."""
        self._text, self._known = text, {name: {*labels, *EVERYWHERE} for name, labels in known.items()}
        self._tokens, self._at = list(_tokens(text)), 0
        self.used: set[str] = set()
        self._expression()
        if self._at != len(self._tokens):
            self._wrong("nothing more")

    def _expression(self) -> set[str]:
        labels = self._term()
        while self._peek("op") in {"+", "-", "*", "/"} | _COMPARISONS or self._peek("name") in ("and", "or", "unless"):
            self._at += 1
            other = self._term()
            labels = labels or other
        return labels

    def _term(self) -> set[str]:
        """Read one part and return the labels that it may be told apart by."""
        if self._take("op", "("):
            labels = self._expression()
            self._need("op", ")")
            return labels
        if self._peek("number") is not None:
            self._at += 1
            return set()
        name = self._need("name")
        if name in AGGREGATIONS:
            return self._aggregation()
        if name in FUNCTIONS:
            return self._function(name)
        return self._series(name)

    def _aggregation(self) -> set[str]:
        how = next((word for word in ("by", "without") if self._take("name", word)), None)
        named = self._names() if how else set()
        self._need("op", "(")
        labels = self._expression()
        self._need("op", ")")
        if not named <= labels:
            raise ValueError(f"{self._text}: there is no label {sorted(named - labels)} in {sorted(labels)}")
        return named if how == "by" else labels - named if how else set()

    def _function(self, name: str) -> set[str]:
        self._need("op", "(")
        found = [self._expression()]
        while self._take("op", ","):
            found.append(self._expression())
        is_ranged = self._tokens[self._at - 1].kind == "range"
        self._need("op", ")")
        if len(found) != FUNCTIONS[name] or (name in RANGED) != is_ranged:
            self._wrong(f"the arguments of {name}")
        if name == "histogram_quantile" and "le" not in found[1]:
            self._wrong("a histogram by le")
        return found[-1] - ({"le"} if name == "histogram_quantile" else set())

    def _series(self, name: str) -> set[str]:
        if name not in self._known:
            self._wrong(f"a metric that there is, not {name}")
        self.used.add(name)
        labels = self._known[name]
        if self._take("op", "{"):
            while not self._take("op", "}"):
                label = self._need("name")
                if label not in labels:
                    self._wrong(f"a label of {name}, not {label}")
                if self._peek("op") not in ("=", "!=", "=~", "!~"):
                    self._wrong("a comparison")
                self._at += 1
                self._need("string")
                if not self._take("op", ",") and self._peek("op") != "}":
                    self._wrong("another label, or the end of them")
        self._at += self._peek("range") is not None
        return set(labels)

    def _names(self) -> set[str]:
        self._need("op", "(")
        found = {self._need("name")}
        while self._take("op", ","):
            found.add(self._need("name"))
        self._need("op", ")")
        return found

    def _peek(self, kind: str) -> str | None:
        token = self._tokens[self._at] if self._at < len(self._tokens) else Token("end", "")
        return token.text if token.kind == kind else None

    def _take(self, kind: str, text: str) -> bool:
        found = self._peek(kind) == text
        self._at += found
        return found

    def _need(self, kind: str, text: str | None = None) -> str:
        found = self._peek(kind)
        if found is None or text not in (None, found):
            self._wrong(text or kind)
        self._at += 1
        assert found is not None
        return found

    def _wrong(self, wanted: str) -> None:
        rest = " ".join(token.text for token in self._tokens[self._at :])
        raise ValueError(f"{self._text}: expected {wanted} before {rest!r}")


def _tokens(text: str) -> Iterable[Token]:
    at = 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text}: nothing is written like {text[at:]!r}")
        at = found.end()
        assert found.lastgroup is not None
        yield Token(found.lastgroup, found[found.lastgroup])
