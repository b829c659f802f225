"""Things of real frameworks, each recognized by its own kind and no other, whatever else it could be taken for."""

from collections.abc import Callable
from typing import Any

from typing_extensions import TypedDict

from accord.api.agent_types import agent_type_of
from tests.cases import each


class State(TypedDict):
    text: str


def graph() -> Any:
    """Return a compiled graph, which is a LangChain runnable as well."""
    from langgraph.graph import START, StateGraph

    made: Any = StateGraph(State)
    made.add_node("node", lambda state: state)
    made.add_edge(START, "node")
    return made.compile()


def graph_that_is_not_compiled() -> Any:
    return graph().builder


def runnable() -> Any:
    """Return a runnable, which can be called in some versions."""
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(lambda text: text)


def pydantic_ai() -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.test import TestModel

    return Agent(TestModel())


def openai_agent() -> Any:
    from agents import Agent

    return Agent(name="helper")


def executor() -> Any:
    from a2a.server.agent_execution import AgentExecutor

    class Mine(AgentExecutor):
        async def execute(self, *_: Any) -> None: ...
        async def cancel(self, *_: Any) -> None: ...

    return Mine()


def worker() -> Any:
    from fasta2a import Worker
    from fasta2a.broker import InMemoryBroker
    from fasta2a.storage import InMemoryStorage

    class Mine(Worker):
        async def run_task(self, params: Any) -> None: ...
        async def cancel_task(self, params: Any) -> None: ...
        def build_message_history(self, history: Any) -> list[Any]:
            return []

        def build_artifacts(self, result: Any) -> list[Any]:
            return []

    return Mine(broker=InMemoryBroker(), storage=InMemoryStorage())


def function() -> Any:
    class Callable_:
        def __call__(self, text: str) -> str:
            return text

    return Callable_()


KINDS: dict[Callable[[], Any], str] = {
    graph: "langgraph",
    graph_that_is_not_compiled: "langgraph",
    runnable: "langchain",
    pydantic_ai: "pydantic-ai",
    openai_agent: "openai-agents",
    executor: "a2a-sdk",
    worker: "fasta2a",
    function: "function",
}


@each(("make", "kind"), KINDS.items())
def test_a_thing_is_of_its_own_kind(make: Callable[[], Any], kind: str) -> None:
    found = agent_type_of(make())
    assert found is not None
    assert found.name == kind
