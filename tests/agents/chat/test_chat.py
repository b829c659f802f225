"""A model as an agent, over both APIs: what it is sent, what it says, and what goes wrong on the way."""

import asyncio
import logging
from contextlib import aclosing
from typing import Any

import pytest

from accord.a2a import Caller
from accord.agents.chat import AGENT_TYPE, ChatOptions
from accord.api.agent_types import AgentArguments
from accord.model import ArtifactUpdate, Part, Role, SubscribeRequest, Task, TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.agents.chat.conftest import Making
from tests.agents.chat.server import (
    Asked,
    Models,
    Stage,
    breaks_after,
    hangs_after,
    refuses,
    says,
)
from tests.agents.talk import reason, saying, sent
from tests.engine.conftest import bounded

KEY = "sk-very-secret-0123456789"
PNG = Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png")


# --- what it says ---------------------------------------------------------------------------------------------------


@bounded
async def test_a_model_answers(make: Making, models: Models, api: str) -> None:
    async with running(make()) as a2a:
        task = await sent(a2a, "hello")
    assert (task.status.state, text_in(task)) == (TaskState.COMPLETED, "you said hello ")
    (asked,) = models.asked
    assert asked.path == {"openai": "/v1/chat/completions", "ollama": "/api/chat"}[api]
    assert "authorization" not in asked.headers
    extra = {"stream_options": {"include_usage": True}} if api == "openai" else {}
    assert asked.body == {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": True, **extra}


@bounded
async def test_answers_are_streamed(make: Making, models: Models) -> None:
    go_on = asyncio.Event()

    async def slowly(stage: Stage, asked: Asked) -> None:
        await stage.head()
        await stage.word("one ")
        await go_on.wait()
        await stage.word("two")
        await stage.end()

    models.plays(slowly)
    said = []
    async with running(make()) as a2a, aclosing(a2a.stream_text("count")) as events:
        async for event in events:
            if isinstance(event.body, ArtifactUpdate):
                said.append((event.body.artifact.parts[0].text, event.body.last_chunk))
                go_on.set()
    assert said[0] == ("one ", False)
    assert "".join(text or "" for text, _ in said) == "one two"
    assert said[-1][1]


@bounded
async def test_options_reach_the_model(make: Making, models: Models, api: str) -> None:
    more: dict[str, Any] = {"keep_alive": "5m", "extra": {"options": {"num_ctx": 8}, "think": False}}
    more = more if api == "ollama" else {"extra": {"seed": 1, "stream_options": {"x": 1}}}
    agent = make(
        system_prompt="Be brief", temperature=0.5, max_output_tokens=9, api_key=KEY, headers={"X-A": "b"}, **more
    )
    async with running(agent) as a2a:
        await sent(a2a, "hi")
    (asked,) = models.asked
    assert asked.body["messages"][0] == {"role": "system", "content": "Be brief"}
    assert (asked.headers["authorization"], asked.headers["x-a"]) == (f"Bearer {KEY}", "b")
    body = {name: value for name, value in asked.body.items() if name not in ("messages", "model", "stream")}
    expected = {
        "ollama": {
            "options": {"temperature": 0.5, "num_predict": 9, "num_ctx": 8},
            "keep_alive": "5m",
            "think": False,
        },
        "openai": {
            "temperature": 0.5,
            "max_tokens": 9,
            "seed": 1,
            "stream_options": {"include_usage": True, "x": 1},
        },
    }
    assert body == expected[api]


@bounded
async def test_usage_is_counted(make: Making) -> None:
    async with running(make(input_price=1_000_000, output_price=2_000_000)) as a2a:
        task = await sent(a2a, "hi")
        task = await a2a.get(task)
    usage = (task.metadata or {})["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["totalTokens"], usage["cost"]) == (7, 5, 12, 17)
    assert usage["models"]["m"]["outputTokens"] == 5


@bounded
async def test_a_server_that_does_not_stream_is_understood(make: Making, models: Models, api: str) -> None:
    answer = {
        "openai": {
            "choices": [{"message": {"content": [{"type": "text", "text": "all at once"}]}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        },
        "ollama": {"message": {"content": "all at once"}, "done": True, "eval_count": 2},
    }
    models.plays(refuses(200, answer[api]))
    async with running(make()) as a2a:
        assert text_in(await sent(a2a, "hi")) == "all at once"


def draws(api: str, data: str) -> Any:
    """A model that answers with a picture, whose bytes are said to be this."""
    image = {"openai": {"type": "image_url", "image_url": {"url": f"data:image/webp;base64,{data}"}}, "ollama": data}

    async def drawing(stage: Stage, asked: Asked) -> None:
        await stage.head()
        await stage.word("", images=[image[api]])
        await stage.end()

    return drawing


@bounded
async def test_pictures_that_a_model_makes_are_files(make: Making, models: Models, api: str) -> None:
    models.plays(draws(api, "YWI="))
    async with running(make()) as a2a:
        task = await sent(a2a, "draw")
    (part,) = [part for artifact in task.artifacts for part in artifact.parts]
    assert (part.raw, part.media_type) == (b"ab", {"openai": "image/webp", "ollama": "image/png"}[api])


@bounded
@pytest.mark.parametrize("data", ["YWI", "\x80"])
async def test_pictures_that_are_none_are_the_model_s_fault(make: Making, models: Models, api: str, data: str) -> None:
    models.plays(draws(api, data))
    async with running(make()) as a2a:
        task = await sent(a2a, "draw")
    assert task.status.state is TaskState.FAILED
    assert reason(task) == "The model server returned a malformed response"


# --- what it is told ------------------------------------------------------------------------------------------------


@bounded
async def test_the_conversation_is_the_context_s(make: Making, models: Models) -> None:
    async with running(make()) as a2a:
        await sent(a2a, saying("one", context="c"))
        await sent(a2a, saying("else", context="d"))
        await sent(a2a, saying("two", context="c"))
    assert [(said["role"], said["content"]) for said in models.asked[-1].body["messages"]] == [
        ("user", "one"),
        ("assistant", "you said one "),
        ("user", "two"),
    ]


@pytest.mark.parametrize(("history", "expected"), [(0, ["three"]), (2, ["two", "you said two ", "three"])])
@bounded
async def test_it_is_reminded_of_as_much_as_it_should(
    make: Making, models: Models, history: int, expected: list[str]
) -> None:
    async with running(make(history=history)) as a2a:
        for word in ("one", "two", "three"):
            await sent(a2a, saying(word, context="c"))
    assert [said["content"] for said in models.asked[-1].body["messages"]] == expected


@bounded
async def test_pictures_and_texts_are_sent(make: Making, models: Models, api: str) -> None:
    notes = Part(raw=b"buy milk", media_type="text/plain", filename="notes.txt")
    async with running(make()) as a2a:
        await sent(a2a, saying("look", notes, PNG, Part(data={"a": 1}, media_type="application/json")))
    (message,) = models.asked[0].body["messages"]
    read_out = "File notes.txt (text/plain):\nbuy milk"
    expected = {
        "openai": [
            {"type": "text", "text": f"look\n{read_out}"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            {"type": "text", "text": '{"a":1}'},
        ],
        "ollama": f'look\n{read_out}\n{{"a":1}}',
    }
    assert message["content"] == expected[api]
    assert message.get("images") == {"openai": None, "ollama": ["iVBORw=="]}[api]


@pytest.mark.parametrize("api", ["openai"], indirect=True)
@bounded
async def test_other_files_are_sent_where_the_api_has_files(make: Making, models: Models) -> None:
    async with running(make()) as a2a:
        await sent(a2a, saying("read", Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf")))
    assert models.asked[0].body["messages"][0]["content"][1]["file"]["filename"] == "a.pdf"


@pytest.mark.parametrize("api", ["ollama"], indirect=True)
@bounded
async def test_other_files_are_refused_where_it_has_none(make: Making, models: Models) -> None:
    async with running(make()) as a2a:
        task = await sent(a2a, saying("read", Part(raw=b"\xff%PDF", filename="a.pdf")))
    assert (task.status.state, models.asked) == (TaskState.REJECTED, [])
    assert reason(task) == "The model takes text and pictures, and no files of unknown type"


# --- what goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
@bounded
async def test_transient_errors_are_retried(make: Making, models: Models, slept: list[float], status: int) -> None:
    models.plays(refuses(status), refuses(status, retry_after="7"))
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, text_in(task), len(models.asked)) == (TaskState.COMPLETED, "you said hi ", 3)
    assert (slept[0] < 1, slept[1]) == (True, 7)


@bounded
async def test_it_is_tried_no_more_often_than_it_should(make: Making, models: Models) -> None:
    models.otherwise = refuses(503)
    async with running(make(retries=2)) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, len(models.asked)) == (TaskState.FAILED, 3)
    assert reason(task) == "The model's server fails (HTTP 503)"


@bounded
async def test_long_retry_after_is_not_waited_for(make: Making, models: Models, slept: list[float]) -> None:
    models.plays(refuses(429, retry_after="3600"))
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (len(models.asked), slept) == (1, [])
    assert reason(task) == "The model has too much to do: it may be asked again in 3600 seconds"


@bounded
async def test_refusals_are_not_retried(make: Making, models: Models) -> None:
    models.plays(refuses(404, {"error": {"message": f"model m not found, key {KEY}"}}))
    async with running(make(api_key=KEY)) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, len(models.asked)) == (TaskState.FAILED, 1)
    assert reason(task) == "The model refuses the request (HTTP 404): model m not found, key ***"


@bounded
async def test_credentials_are_never_shown(make: Making, models: Models, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "accord")
    agent = make(api_key=KEY, headers={"X-Key": "other-secret"})
    models.plays(refuses(401, {"error": f"Incorrect key {KEY} and other-secret"}))
    async with running(agent) as a2a:
        task = await sent(a2a, "hi")
    assert reason(task) == "The model's server does not accept the agent's credentials"
    told = [*(str(vars(record)) for record in caplog.records), repr(agent._options), str(task)]
    assert any("Incorrect key *** and ***" in text for text in told)
    assert not [text for text in told if KEY in text or "other-secret" in text]


@bounded
async def test_truncated_answers_fail(make: Making, models: Models) -> None:
    models.plays(breaks_after(["one ", "two "]))
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, len(models.asked)) == (TaskState.FAILED, 1)
    assert reason(task) == "The model cannot be reached, or its answer broke off"
    assert text_in(task) == "one two "


@bounded
async def test_answers_truncated_before_the_first_word_are_retried(make: Making, models: Models) -> None:
    models.plays(breaks_after([]))
    async with running(make()) as a2a:
        assert text_in(await sent(a2a, "hi")) == "you said hi "
    assert len(models.asked) == 2


@pytest.mark.parametrize("raw", [b"data: {nonsense\n\n{nonsense\n", b'data: ["x"]\n\n["x"]\n', b"data: 7\n\n7\n"])
@bounded
async def test_invalid_answers_are_reported(make: Making, models: Models, raw: bytes) -> None:
    models.plays(breaks_after(["one "], raw=raw))
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert reason(task) == "The model server returned a malformed response"


@pytest.mark.parametrize(
    ("form", "named"), [("text/html; charset=utf-8", "text/html"), ("text/plain", "a page"), ("image/png", "image/png")]
)
@bounded
async def test_html_pages_are_refused_without_retry(
    make: Making, models: Models, caplog: pytest.LogCaptureFixture, form: str, named: str
) -> None:
    async def page(stage: Stage, asked: Asked) -> None:
        await stage.head(content_type=form)
        await stage.raw(b"\n<!doctype html><title>Sign in</title>")

    models.otherwise = page
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, len(models.asked)) == (TaskState.FAILED, 1)
    assert reason(task) == f"The model server returned {named}, which is not a response of its API"
    (noted,) = [vars(record) for record in caplog.records if record.name == "accord.agents.chat"]
    assert (noted["task_id"], "base_url" in noted["reason"]) == (task.id, True)


@bounded
async def test_a_model_that_never_comes_to_an_end_is_given_up(make: Making, models: Models) -> None:
    async def goes_on(stage: Stage, asked: Asked) -> None:
        await stage.head()
        while True:
            await stage.word("and ")
            await asyncio.sleep(0.01)

    models.plays(goes_on)
    async with running(make(answer_seconds=2)) as a2a:
        task = await sent(a2a, "hi")
        await models.left.wait()
    assert (task.status.state, reason(task)) == (TaskState.FAILED, "The model was not done after 2 seconds")


@bounded
async def test_nor_is_it_tried_again_after_its_time(make: Making, models: Models) -> None:
    models.otherwise = hangs_after(begins=False)
    async with running(make(answer_seconds=2)) as a2a:
        task = await sent(a2a, "hi")
    assert (reason(task), len(models.asked)) == ("The model was not done after 2 seconds", 1)


@bounded
async def test_stream_errors_are_reported(make: Making, models: Models) -> None:
    async def fails(stage: Stage, asked: Asked) -> None:
        await stage.head()
        await stage.word("well ")
        await stage.value({"error": {"message": "out of memory"}} if asked.is_openai else {"error": "out of memory"})

    models.plays(fails)
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (reason(task), text_in(task)) == ("The model failed: out of memory", "well ")


@bounded
async def test_unreachable_servers_are_reported(make: Making, slept: list[float]) -> None:
    agent = make(base_url="http://127.0.0.1:1/v1", retries=1)
    async with running(agent) as a2a:
        task = await sent(a2a, "hi")
    assert (reason(task), len(slept)) == ("The model cannot be reached, or its answer broke off", 1)


@pytest.mark.parametrize("begins", [True, False])
@bounded
async def test_a_model_that_falls_silent_is_given_up(make: Making, models: Models, begins: bool) -> None:
    models.plays(hangs_after(begins=begins))
    async with running(make(start_seconds=2, silent_seconds=2)) as a2a:
        task = await sent(a2a, "hi")
    assert (reason(task), len(models.asked)) == ("The model does not answer in time", 1)


@bounded
async def test_cancelling_closes_the_connection(make: Making, models: Models) -> None:
    models.plays(hangs_after("one "))
    async with running(make()) as a2a:
        task = await a2a.send_text("hi", at_once=True)
        async with aclosing(a2a.service.subscribe(SubscribeRequest(id=task.id), Caller())) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event.body, ArtifactUpdate) or (isinstance(event.body, Task) and event.body.artifacts):
                    break
        task = await a2a.cancel(task)
        await models.left.wait()
    assert task.status.state is TaskState.CANCELED


@bounded
async def test_overlong_answers_are_reported(make: Making, models: Models) -> None:
    models.plays(says("one ", "two", reason="length"))
    async with running(make()) as a2a:
        task = await sent(a2a, "hi")
    assert (task.status.state, text_in(task)) == (TaskState.COMPLETED, "one two")
    assert [said.parts[0].text for said in task.history if said.role is Role.AGENT] == [
        "The answer is cut off: it has reached the longest that it may be"
    ]


@pytest.mark.parametrize("api", ["openai"], indirect=True)
@bounded
async def test_a_model_may_refuse(make: Making, models: Models) -> None:
    async def refuses_to(stage: Stage, asked: Asked) -> None:
        await stage.head()
        await stage.word("", refusal="I will ")
        await stage.word("", refusal="not")
        await stage.end()

    models.plays(refuses_to, says("half", reason="content_filter"), says(""))
    async with running(make()) as a2a:
        refused, withheld, silent = [await sent(a2a, saying("hi")) for _ in range(3)]
    assert (refused.status.state, reason(refused)) == (TaskState.REJECTED, "I will not")
    assert (withheld.status.state, text_in(withheld)) == (TaskState.FAILED, "half")
    assert reason(silent) == "The model returned no answer"


# --- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"base_url": "localhost:11434"}, {"keep_alive": "5m"}, {"keep_alive": "5m", "api": "openai"}]
)
def test_settings_without_effect_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"base_url|keep_alive"):
        ChatOptions(**{"model": "m", **options})


def test_the_card_describes_the_model() -> None:
    agent = AGENT_TYPE.make(AgentArguments(options=ChatOptions(model="llama3.2", api="ollama")))
    assert (agent.profile.name, agent.profile.description) == ("llama3.2", "Talks as the model llama3.2.")
    assert "image/*" in agent.profile.input_modes
    named = AGENT_TYPE.make(AgentArguments(name="helper", options=ChatOptions(model="x", description="Helps")))
    assert (named.profile.name, named.profile.description) == ("helper", "Helps")
