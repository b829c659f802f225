"""A Pydantic AI agent: `accord serve examples/agents/pydantic_ai_agent.py:librarian`.

It lends books, and wants a person's approval before it deletes one. The model is a stand-in that needs no key: put
`"openai:gpt-5"` or any other in its place.
"""

from collections.abc import AsyncIterator

from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, RunContext
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from accord import Context

BOOKS = {"Emma", "Ulysses"}


async def think(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
    """Call the tool that is named first, with the word after it; say what it gave."""
    said = messages[-1].parts[-1]
    if said.part_kind == "tool-return":
        yield f"{said.content} "
        yield f"You have said {sum(part.part_kind == 'user-prompt' for one in messages for part in one.parts)} things."
        return
    tool, _, book = str(getattr(said, "content", "")).partition(" ")
    if tool in {"lend", "delete"}:
        yield {0: DeltaToolCall(name=tool, json_args=f'{{"book": "{book}"}}', tool_call_id=f"call-{len(messages)}")}
    else:
        yield "Say `lend` or `delete`, and a book."


librarian = Agent(
    FunctionModel(stream_function=think),
    name="librarian",
    deps_type=Context,  # the task at hand; or say `deps = "module:function"` in accord.toml
    output_type=[str, DeferredToolRequests],
    instructions="You are a librarian.",
)


@librarian.tool
async def lend(run: RunContext[Context], book: str) -> str:
    """Lend a book."""
    if book not in BOOKS:
        await run.deps.status(f"{book} is not here")
        return f"There is no {book}."
    return f"{book} is yours."


@librarian.tool_plain(requires_approval=True)
def delete(book: str) -> str:
    """Delete a book."""
    BOOKS.discard(book)
    return f"{book} is gone."
