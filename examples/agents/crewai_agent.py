"""A crew of CrewAI: `accord serve examples/agents/crewai_agent.py:crew`, with crewai in the environment.

What the caller says is the crew's one variable, `{topic}`. The model below needs no key; put yours in its place.
"""

from typing import Any

from crewai import Agent, BaseLLM, Crew, Task


class Parrot(BaseLLM):
    """Stands in for a model: it repeats its task, word by word."""

    def call(self, messages: Any, *_: Any, from_task: Any = None, from_agent: Any = None, **__: Any) -> str:
        said: str = from_task.description
        for word in said.split():
            self._emit_stream_chunk_event(chunk=f"{word} ", from_task=from_task, from_agent=from_agent)
        return said


llm = Parrot(model="parrot")
researcher = Agent(role="Researcher", goal="Find what is known", backstory="You read everything.", llm=llm)
writer = Agent(role="Writer", goal="Write it down", backstory="You write plainly.", llm=llm)

crew = Crew(
    name="reporters",
    agents=[researcher, writer],
    tasks=[
        Task(description="Find out about {topic}", expected_output="A list of facts", agent=researcher),
        Task(description="Write about {topic}", expected_output="A page", agent=writer),  # human_input=True asks for
        # feedback: the task waits, with nothing running, until somebody says what to do better, or that it is fine
    ],
)
