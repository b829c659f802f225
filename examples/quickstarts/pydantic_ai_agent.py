"""A Pydantic AI agent. `TestModel` calls every tool once and needs no key: put a real model in its place."""

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.models.test import TestModel

librarian = Agent(
    TestModel(custom_output_text="It is gone."),
    name="librarian",
    instructions="You look after a library.",
    output_type=[str, DeferredToolRequests],
)


@librarian.tool_plain(requires_approval=True)  # the task waits for a yes, with nothing running
def delete(book: str) -> str:
    """Delete a book."""
    return f"{book} is deleted."
