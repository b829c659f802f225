"""What a command asks, what it is answered, and how that is put to a command that has to be started for it.

Values and wording only; who asks and who waits is `talk`.
"""

from typing import Any

from msgspec import Struct

from accord.engine.messages import YES

GO_ON = "You were interrupted. Go on where you stopped, and do not repeat what is done."
GRANTED = "You are now allowed to do this: {grants}. Go on."
REFUSED = "You are not allowed to do this: {grants}. {comment}Go on without it, or say why that is impossible."
ANSWERED = "You asked:\n{question}\n\nThe answer is: {answer}"


NO = frozenset({"no", "n", "deny", "denied", "reject", "rejected", "false", "0"})


class Question(Struct, frozen=True):
    """What a command asked: with `grants`, whether it may do these things; `waits` if it waits in its terminal."""

    text: str
    grants: tuple[str, ...] = ()
    waits: bool = False


class Reply(Struct, frozen=True):
    """An answer; to the question whether something may be done, also what was decided."""

    question: Question
    text: str
    is_granted: bool = False

    @property
    def grants(self) -> tuple[str, ...]:
        """What may be done by now."""
        return self.question.grants if self.is_granted else ()

    def told(self) -> str:
        """Return the answer for a command that is started anew."""
        if not self.question.grants:
            return ANSWERED.format(question=self.question.text, answer=self.text)
        comment = f"{self.text}\n" if self.text else ""
        wording = GRANTED if self.is_granted else REFUSED
        return wording.format(grants=", ".join(self.question.grants), comment=comment)


def replied(question: Question, text: str, data: Any) -> Reply:
    """Return what an answer says: a decision as consoles send it, or words."""
    if isinstance(data, dict) and "approved" in data:
        is_granted = data["approved"] is True
        comment = str(data.get("comment") or "")
        return Reply(question, comment if question.grants else "yes" if is_granted else "no", is_granted)
    if not question.grants:
        return Reply(question, text)
    word, _, rest = text.strip().partition(" ")
    word = word.strip(".,!").lower()
    return Reply(question, rest.strip() if word in YES | NO else text.strip(), word in YES)
