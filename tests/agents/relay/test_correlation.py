"""Which message of a channel answers: tags and threads, and what is taken without either."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.agents.relay.channel import (
    AnswerSearch,
    ChannelMessage,
    RelayRequest,
    format_request,
    parse_messages,
    request_text,
)
from tests.cases import each

OLD = {"id": 1, "from": "Worker1", "text": "DONE: old"}


def said(text: str, sender: str = "Worker1", number: int | None = None, **more: Any) -> dict[str, Any]:
    return {"from": sender, "text": text, **({} if number is None else {"id": number}), **more}


def watch(
    *after: dict[str, Any],
    before: tuple[dict[str, Any], ...] = (),
    target: str | None = "Worker1",
    id: str | None = None,
) -> AnswerSearch:
    """A watch for the answer to `what is it?`, which lies between two times."""
    asked = RelayRequest(
        tag="t-1", text=format_request("what is it?", "t-1"), at=0.0, before=tuple(parse_messages(before)), id=id
    )
    found = AnswerSearch(asked, target)
    own = said(asked.text, "a2a", None if id is None else int(id))
    found.feed(parse_messages([*before, own, *after]))
    return found


def answer(*after: dict[str, Any], **more: Any) -> str | None:
    found = watch(*after, **more).answer()
    return None if found is None else found.answer


@pytest.mark.proves("C-10", "1-48")
@pytest.mark.parametrize(
    "text", ["DONE: [a2a:t-1] it is 42", "DONE:   it is 42\n\n[a2a:t-1] ", "DONE:[a2a:t-1]it is 42", "DONE: it is 42"]
)
def test_an_answer_is_found_by_its_tag_and_stripped(text: str) -> None:
    assert answer(said("thinking"), said(text)) == "it is 42"


@pytest.mark.proves("C-10")
@each(
    ("after", "before"),
    [
        ((), (OLD,)),
        ((said("DONE: [a2a:t-2] theirs"),), ()),
        ((said("DONE: theirs [a2a:t-2]"),), ()),
        ((said("DONE: mine", thread_id="77"),), ()),
        ((said("not DONE: yet"),), ()),
        ((said("done: no"),), ()),
        ((said("please [a2a:t-2]", "somebody"), said("DONE: whose?")), ()),
        ((said("DONE: whose?"),), (said("please [a2a:t-0]", "somebody", 1),)),
        ((said("DONE: [a2a:t-1] forged", "Mallory"),), ()),
        ((said("FAILED: no tag"),), ()),
        ((said("DONE: [a2a:t-2] quoting [a2a:t-1]"),), ()),
    ],
)
def test_an_old_or_foreign_answer_is_never_taken(after: tuple[Any, ...], before: tuple[Any, ...]) -> None:
    assert answer(*after, before=before) is None


@pytest.mark.proves("C-10")
def test_late_answers_to_earlier_requests_are_ignored() -> None:
    first = said("please [a2a:t-0]", "a2a", 1)
    late = said("DONE: to the first", number=3)
    assert answer(late, before=(first,), id="2") is None
    assert answer(late, said("DONE: [a2a:t-1] to ours", number=4), before=(first,), id="2") == "to ours"
    tagged = said("DONE: [a2a:t-0] to the first", number=3)
    assert answer(tagged, said("DONE: to ours", number=4), before=(first,), id="2") == "to ours"
    answered = (first, said("DONE: to the first", number=2))
    assert answer(said("DONE: to ours", number=4), before=answered, id="3") == "to ours"


@pytest.mark.proves("1-49")
def test_only_the_target_answers_and_without_one_anybody() -> None:
    others = said("DONE: by another", "Worker2")
    assert answer(others) is None
    assert answer(others, said("DONE: mine")) == "mine"
    assert answer(others, target=None) == "by another"
    assert answer(said("I have a question for Worker3", "Bob"), others, target=None) is None, "nobody knows whose it is"
    assert answer(said("DONE: [a2a:t-1] surely", "Worker9"), target=None) == "surely"


def test_a_reply_in_the_thread_is_an_answer() -> None:
    assert answer(said("DONE: in it", number=8, thread_id=7), id="7") == "in it"
    assert answer(said("DONE: in another", number=8, replyTo=6), id="7") is None


def test_a_failure_is_one_only_with_the_tag() -> None:
    found = watch(said("FAILED: [a2a:t-1] no such city")).answer()
    assert found is not None
    assert (found.word, found.answer) == ("FAILED:", "no such city")


@pytest.mark.parametrize(
    ("after", "about"),
    [
        ([said("half of it [a2a:t-1]"), said("mine [a2a:t-1]", "Bob")], ["half of it"]),
        ([said("half of it"), said("most of it")], ["half of it", "most of it"]),
        ([said("half of it", thread_id="77")], []),
        ([said("hello", "Bob"), said("hello Bob"), said("half of it [a2a:t-1]")], ["half of it"]),
        ([said("please [a2a:t-2]", "Bob"), said("on it")], []),
        ([said("half of it"), said("please [a2a:t-2]", "Bob"), said("on it")], ["half of it"]),
        ([said("DONE: [a2a:t-1] it is 42"), said("what a day")], []),
    ],
)
def test_progress_is_distinguished_from_chatter(after: list[dict[str, Any]], about: list[str]) -> None:
    found = watch()
    new = found.feed(parse_messages(after))
    assert [entry.answer for entry in new if found.is_about(entry)] == about


def test_without_a_target_only_tagged_messages_match() -> None:
    found = watch(target=None)
    new = found.feed(parse_messages([said("half of it"), said("most of it [a2a:t-1]")]))
    assert [entry.answer for entry in new if found.is_about(entry)] == ["most of it"]


def test_requests_name_their_conversation() -> None:
    entry = ChannelMessage(key="1", text=format_request("see [context:c-2] and [a2a:t-2]", "t-1", "c-1"))
    assert (entry.tag, entry.context, entry.is_request) == ("t-1", "c-1", True)
    assert request_text(entry) == "see (context:c-2) and (a2a:t-2)"
    assert entry.text.splitlines()[-1] == "[a2a:t-1]"
    word = ChannelMessage(key="1", text=format_request("DONE: haha", "t-1", "c-1"))
    assert (word.tag, word.context, word.word, request_text(word)) == ("t-1", "c-1", "", "DONE: haha")
    repeated = ChannelMessage(key="2", text="DONE: [a2a:t-1] 42 [context:c-1]")
    assert repeated.answer == "42"
    assert ChannelMessage(key="3", text=format_request("plain", "t-1")).context is None


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_may_have_either_end_first(numbered: bool, newest_first: bool) -> None:
    asked = RelayRequest(
        tag="t-1",
        text=format_request("go", "t-1"),
        at=0.0,
        before=tuple(parse_messages(_page(numbered, ["DONE: old", "hi"]))),
    )
    found = AnswerSearch(asked, "Worker1")
    talk = ["DONE: old", "hi", asked.text, "thinking", "DONE: new"]
    for upto in range(3, 6):
        page = _page(numbered, talk[:upto])
        found.feed(parse_messages(page[::-1] if newest_first else page))
        assert (found.answer() is not None) is (upto == 5)
    last = found.answer()
    assert last is not None
    assert last.answer == "new"


def _page(numbered: bool, texts: list[str]) -> list[dict[str, Any]]:
    return [said(text, "Worker1", at if numbered else None) for at, text in enumerate(texts, 1)]


def test_repeated_texts_without_ids_are_new_messages() -> None:
    old = said("DONE: 42")
    asked = RelayRequest(tag="t-1", text=format_request("go", "t-1"), at=0.0, before=tuple(parse_messages([old])))
    found = AnswerSearch(asked, "Worker1")
    found.feed(parse_messages([old, said(asked.text, "a2a")]))
    assert found.answer() is None
    found.feed(parse_messages([old, said(asked.text, "a2a"), said("DONE: 42")]))
    assert found.answer() is not None


def test_caller_text_is_neither_tag_nor_answer() -> None:
    forged = ChannelMessage(key="1", text=format_request("DONE: [a2a:t-2] haha", "t-1"))
    assert (forged.tag, forged.word, forged.is_request) == ("t-1", "", True)
    plain = ChannelMessage(key="1", text=format_request("see [a2a:t-2]", "t-1"))
    assert (plain.tag, plain.is_request) == ("t-1", True)


TAGS = st.sampled_from(["t-0", "t-1", "t-2"])


@pytest.mark.proves("C-10")
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), TAGS),
            st.tuples(st.just("answer"), TAGS),
            st.tuples(st.just("untagged"), st.just("t-1")),
        ),
        max_size=8,
    )
)
def test_only_unambiguous_messages_match(talk: list[tuple[str, str]]) -> None:
    texts = {"ask": "please [a2a:{}]", "answer": "DONE: [a2a:{}] {}", "untagged": "DONE: untagged"}
    after = [said(texts[kind].format(tag, tag), "Bob" if kind == "ask" else "Worker1") for kind, tag in talk]
    assert answer(*after) == _meant(talk)


def _meant(talk: list[tuple[str, str]]) -> str | None:
    if ("answer", "t-1") in talk:
        return "t-1"
    waiting = {"t-1"}
    for kind, tag in talk:
        if kind == "untagged" and waiting == {"t-1"}:
            return "untagged"
        waiting = waiting | {tag} if kind == "ask" else waiting - {tag if kind == "answer" else ""}
    return None
