"""A crew of CrewAI. Its model is a stand-in that needs no key: put yours in its place."""

from typing import Any

from crewai import Agent, BaseLLM, Crew, Task


class StandIn(BaseLLM):
    def call(self, messages: Any, *_: Any, from_task: Any = None, **__: Any) -> str:
        return f"Done: {from_task.description}"


writer = Agent(role="Writer", goal="Write it down", backstory="You write plainly.", llm=StandIn(model="stand-in"))
task = Task(description="Write about {topic}", expected_output="A page", agent=writer, human_input=True)

crew = Crew(name="reporters", agents=[writer], tasks=[task])  # what the caller says is the one variable, {topic}
