"""Agents as tools: what is offered, what is answered, and how questions, files, progress and cancels get through."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from tests.mcp.agents import PNG
from tests.mcp.conftest import Connect

BOUND_SECONDS = 60


def text(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, TextContent)]


def says(file: Path, content: str) -> bool:
    return file.exists() and file.read_text() == content


async def until(file: Path, content: str) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not says(file, content):  # noqa: ASYNC110  # it is written by an agent
            await asyncio.sleep(0.02)


async def test_each_agent_is_a_tool_with_a_safe_name(connect: Connect) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["echo", "trip_agent", "permit", "count", "fail", "slow", "patient", "files", "data"]
    assert tools["trip_agent"].title == "trip agent"
    assert tools["trip_agent"].description == "Plans trips\n- Book: Books a trip\n- Price: Says what it costs"


async def test_each_skill_may_be_a_tool(connect: Connect) -> None:
    async with connect(by_skill=True) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["trip_agent_book_it"].description == "Books a trip\nExample: to Rome"
        asked = await client.call_tool("trip_agent_price", {"message": "a trip"})
        ended = await client.call_tool(
            "trip_agent_price", {"message": "Rome", "task_id": asked.structured_content["task_id"]}
        )
    assert text(ended) == ["to Rome by price"]


async def test_a_call_is_answered(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("echo", {"message": "hello"})
    assert not result.is_error
    assert text(result) == ["you said hello"]
    assert result.structured_content["state"] == "completed"
    assert result.structured_content["text"] == "you said hello"


async def test_results_and_failures_are_distinguished(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("fail", {"message": "half way"})
    assert result.is_error
    assert text(result) == ["so far", "no such city"]
    assert result.structured_content["text"] == "so far\nno such city"


async def test_conversations_continue_by_context_id(connect: Connect) -> None:
    async with connect() as client:
        first = (await client.call_tool("echo", {"message": "a"})).structured_content
        second = await client.call_tool("echo", {"message": "b", "context_id": first["context_id"]})
    assert second.structured_content["context_id"] == first["context_id"]
    assert second.structured_content["task_id"] != first["task_id"]


async def test_failures_are_errors_with_a_reason(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("fail", {"message": "hello"})
    assert result.is_error
    assert text(result) == ["no such city"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "Say something"),
        ({"message": 7}, "not understood"),
        ({"mesage": "hello"}, "not understood"),
        ({"files": [{"name": "a"}]}, "A file needs its content"),
        ({"task_id": "nowhere"}, "not found"),
    ],
)
async def test_invalid_arguments_are_explained(connect: Connect, arguments: dict[str, Any], why: str) -> None:
    async with connect() as client:
        result = await client.call_tool("echo", arguments)
    assert result.is_error
    assert why.lower() in text(result)[0].lower()


async def test_a_tool_that_is_not_there_is_refused(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match="no tool"):
            await client.call_tool("nobody", {"message": "hello"})


async def test_intermediate_messages_are_progress(connect: Connect) -> None:
    heard: list[tuple[float, str | None]] = []

    async def heard_of(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with connect() as client:
        result = await client.call_tool("count", {"message": "go"}, progress_callback=heard_of)
    assert text(result) == ["one two three"]
    assert [done for done, _ in heard] == sorted({done for done, _ in heard}), "it only grows"
    assert [message for _, message in heard] == ["beginning", "one ", "two ", "three"]


async def test_data_is_structured(connect: Connect) -> None:
    async with connect() as client:
        result = await client.call_tool("data", {"message": "x", "data": {"a": [1]}})
    assert result.structured_content["data"] == {"given": {"a": [1]}}
    assert text(result) == ['{"given":{"a":[1]}}'], "for clients that do not look at structured content"


async def test_files_are_resources_and_images(connect: Connect) -> None:
    given = [
        {"name": "a.bin", "content": base64.b64encode(b"\x00").decode()},
        {"name": "b.txt", "media_type": "text/plain", "content": base64.b64encode(b"hi").decode()},
    ]
    async with connect() as client:
        result = await client.call_tool("files", {"files": given})
    binary, words, image, link = result.content
    assert isinstance(binary, EmbeddedResource)
    assert isinstance(binary.resource, BlobResourceContents)
    assert base64.b64decode(binary.resource.blob) == b"\x00!"
    assert binary.resource.uri.endswith("/a.bin")
    assert isinstance(words, EmbeddedResource)
    assert isinstance(words.resource, TextResourceContents)
    assert words.resource.text == "hi!"
    assert isinstance(image, ImageContent)
    assert base64.b64decode(image.data) == PNG
    assert isinstance(link, ResourceLink)
    assert link.uri == "https://a.example/b.pdf"


# --- questions --------------------------------------------------------------------------------------------------------


async def test_without_elicitation_a_question_is_a_result(connect: Connect) -> None:
    async with connect() as client:
        asked = await client.call_tool("trip_agent", {"message": "a trip"})
        task_id = asked.structured_content["task_id"]
        assert not asked.is_error
        assert asked.structured_content["state"] == "input-required"
        assert text(asked)[0] == "Which city?"
        assert task_id in text(asked)[1]
        ended = await client.call_tool("trip_agent", {"message": "Rome", "task_id": task_id})
    assert text(ended) == ["to Rome by None"]


async def test_with_forms_a_question_is_one(connect: Connect) -> None:
    shown: list[str] = []

    async def fill_in(context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        shown.append(params.message)
        return ElicitResult(action="accept", content={"answer": "Rome"})

    async with connect(elicitation_callback=fill_in) as client:
        result = await client.call_tool("trip_agent", {"message": "a trip"})
    assert shown == ["Which city?"]
    assert text(result) == ["to Rome by None"]


async def test_an_approval_is_a_form_with_a_switch(connect: Connect) -> None:
    async def fill_in(context: Any, params: Any) -> ElicitResult:
        assert list(params.requested_schema["properties"]) == ["approved", "comment"]
        return ElicitResult(action="accept", content={"approved": True, "comment": "go ahead"})

    async with connect(elicitation_callback=fill_in) as client:
        result = await client.call_tool("permit", {"message": "?"})
    assert text(result) == ["yes, go ahead"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_that_is_not_filled_in_leaves_the_question(connect: Connect, action: Any) -> None:
    async def refuse(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action=action)

    async with connect(elicitation_callback=refuse) as client:
        result = await client.call_tool("trip_agent", {"message": "a trip"})
    assert result.structured_content["state"] == "input-required"


# --- long calls -------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_given_up_cancels_its_task(connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "slow"
    async with connect() as client:
        call = asyncio.create_task(client.call_tool("slow", {"message": str(file)}))
        await until(file, "working")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(file, "stopped")


async def test_timed_out_calls_explain_how_to_continue(connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "there"
    async with connect(wait=0.3) as client:
        begun = await client.call_tool("patient", {"message": str(file)})
        task_id = begun.structured_content["task_id"]
        assert begun.structured_content["state"] == "working"
        assert task_id in text(begun)[-1]
        file.touch()
        async with asyncio.timeout(BOUND_SECONDS):
            result = await client.call_tool("patient", {"task_id": task_id})
            while result.structured_content["state"] == "working":
                result = await client.call_tool("patient", {"task_id": task_id})
    assert text(result) == ["it is there"]
