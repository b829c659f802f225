"""Rules that split a prompt into tasks, pick agents and parse commands.

The same prompt always gives the same tasks, without a model. List items and lines become one task each. Sentences are
split between two actions.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from accord.api import ServedAgent

ITEM = re.compile(r"^\s*(?:[-*•+]|\(?\d{1,3}[.):]|[a-z]\))\s+(?P<what>\S.*)$")
"""A line of a list: bulleted, numbered or lettered."""

NEXT = re.compile(
    r"\s*(?:;|[.!?](?=\s)|,?\s+(?:and\s+)?(?:then|afterwards|after that|finally)\b[\s,]*)\s*", re.IGNORECASE
)
"""Separator between two actions in a line."""

AND = re.compile(r",?\s+and\s+(?:also\s+)?(?=(?P<word>[a-z]+)\b)|,\s+(?=(?P<other>[a-z]+)\b)", re.IGNORECASE)
"""Possible separator: it counts if an action word follows."""

FIRST = re.compile(r"^(?:(?:please|first|next|then|finally|and|also|can you|could you|i want you to)\b[\s,:]*)+", re.I)

ACTION_WORDS = frozenset(
    """add analyse analyze answer approve archive arrange ask assemble book build buy calculate call check clean collect
    compare compile compose compute convert count create delete deliver deploy describe design document download draft
    edit email estimate evaluate explain export extract fetch file find fix forecast gather generate get give identify
    import inform install investigate invite list make measure merge message monitor move notify order organise organize
    outline plan post prepare present print propose publish rank read record recommend remind remove rename repeat
    replace report research reserve review revise run save say schedule search select send set share show sort start
    store suggest summarise summarize tell test track translate update upload validate verify visit write""".split()  # noqa: SIM905  # words read best as such
)
"""Verbs of tasks. An `and` before one of them joins two actions, not two objects of one action."""

WORD = re.compile(r"[a-z0-9]+")
COMMON = frozenset(
    """a an and are as at be by do for from give how i in into is it its me my of on or our please that the their them
    then there these they this to us we what which who with you your agent agents task tasks""".split()  # noqa: SIM905
)
"""Words that do not identify an agent."""

NAME, SKILL, TEXT = 4, 3, 1
"""Weight of a word in an agent's name, in a skill's name or tags, or in a description."""

TITLE = 120


def split_prompt(prompt: str) -> list[str]:
    """Return the tasks in a prompt, in order and without duplicates."""
    lines = [line for line in prompt.splitlines() if line.strip()]
    items = [match["what"] for line in lines if (match := ITEM.match(line))]
    pieces = items or [piece for line in lines for piece in _pieces(line)]
    cleaned = [_cleaned(piece) for piece in pieces]
    return list(dict.fromkeys(piece for piece in cleaned if WORD.search(piece.lower())))


def _pieces(line: str) -> Iterable[str]:
    # One space each: the patterns take cubic time for a run of blanks, 80 s for 2000 of them.
    for sentence in NEXT.split(" ".join(line.split())):
        begin = 0
        for match in AND.finditer(sentence):
            if (match["word"] or match["other"]).lower() in ACTION_WORDS and WORD.search(
                sentence[begin : match.start()].lower()
            ):
                yield sentence[begin : match.start()]
                begin = match.end()
        yield sentence[begin:]


def _cleaned(piece: str) -> str:
    bare = FIRST.sub("", piece.strip()).strip(" \t.,;:!") or piece.strip()
    whole = bare[:1].upper() + bare[1:]
    return whole if len(whole) <= TITLE else whole[: TITLE - 1].rstrip() + "…"


# --- which agent does it ----------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """Return a name for comparison: lower case, words joined by hyphens."""
    return "-".join(WORD.findall(name.lower()))


def pick_agent(task: str, agents: Mapping[str, ServedAgent], default: str) -> str:
    """Return the agent whose name, skills and description match most words of a task, else the default."""
    task_stems = _stems(task)
    scores = {name: _score(task_stems, served) for name, served in agents.items()}
    best = max(scores, key=lambda name: (scores[name], name == default))
    return best if scores[best] else default


def _score(task_stems: frozenset[str], served: ServedAgent) -> int:
    name = _stems(served.name)
    skills = _stems(*(word for skill in served.skills for word in (skill.id, skill.name or "", *skill.tags)))
    examples = (word for skill in served.skills for word in (skill.description or "", *skill.examples))
    text = _stems(served.description, *examples)
    weights = ((NAME, name), (SKILL, skills - name), (TEXT, text - skills - name))
    return sum(weight * len(task_stems & words) for weight, words in weights)


def _stems(*texts: str) -> frozenset[str]:
    return frozenset(_stem(word) for text in texts for word in WORD.findall(text.lower()) if word not in COMMON)


def _stem(word: str) -> str:
    """Return the rough stem that a word's forms share: translate, translator, translation."""
    for ending in ("ations", "ation", "ators", "ator", "ating", "ates", "ated", "ate", "ing", "ers", "er", "ed", "es"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word.removesuffix("s").removesuffix("e") if len(word) > 3 else word


# --- commands on planned tasks ----------------------------------------------------------------------------------------

Verb = Literal["execute", "cancel", "done", "status"]

_YES = r"y|yes|yep|yup|yeah|sure|ok(?:ay)?"
_VERBS: Sequence[tuple[Verb, str]] = (
    (
        "execute",
        rf"execute|run|start|begin|do|(?:let'?s )?go(?: ahead)?|launch|proceed|(?:{_YES})(?:,? please)?,?",
    ),
    ("cancel", r"(?:(?:no|nope)[ ,.!]+)?(?:cancel|drop|stop|skip|remove)"),
    ("done", r"done|finish(?:ed)?|complete(?:d)?|mark"),
    (
        "status",
        r"(?:no|nope)(?:,? thanks?(?: you)?)?|not (?:now|yet)|later|"
        r"status|progress|plan|show|list|how is it going|how far(?: are we)?",
    ),
)
_WHICH = r"(?:\s+(?:with|the|task|tasks|no\.?|number|them|plan|it|that|of|#))*"
_ALL = r"\s*(?P<all>all|everything|every|both)?(?:\s+(?:of|them|tasks?|it))*"
_NUMBER = r"#?\d{1,3}(?!\d)"
_NUMBERS = rf"\s*(?P<numbers>{_NUMBER}(?:(?:\s*(?:,\s*and|,|and|&)\s*|\s*){_NUMBER})*)?"
_DONE = r"(?:\s+as\s+done)?\s*"

MAX_COMMAND = 1_000
"""Maximum length of a command before its colon. Some patterns take quadratic time for lists of words."""


class PlanCommand(NamedTuple):
    """A command on planned tasks: their numbers, or none for all; `rest` is the result that the user reports."""

    verb: Verb
    numbers: tuple[int, ...] = ()
    rest: str = ""


def parse_command(text: str) -> PlanCommand | None:
    """Return the command in a text, or None if the text contains anything else."""
    head, *result = re.split("[:-]", text.strip().rstrip(".!?"), maxsplit=1)
    command = " ".join(head.split())
    if len(command) > MAX_COMMAND or result == [""]:
        return None
    for verb, words in _VERBS:
        match = re.fullmatch(
            rf"(?:(?:{_YES})\b[\s,.!]+)?(?:please\s+)?(?:{words}){_WHICH}{_ALL}{_NUMBERS}{_DONE}",
            command,
            re.IGNORECASE,
        )
        if match:
            numbers = tuple(dict.fromkeys(int(number) for number in re.findall(r"\d+", match["numbers"] or "")))
            if verb == "done" and not numbers:
                return None
            return PlanCommand(verb, numbers, "".join(result).strip())
    return None
