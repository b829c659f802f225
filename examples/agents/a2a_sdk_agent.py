"""An executor of the official SDK, unchanged: `accord serve examples/agents/a2a_sdk_agent.py:executor`.

It knows nothing of accord. A question ends `execute`, and the task waits with nothing running until its answer calls it
again, on any node; what it reports is durable before anybody is shown it.
"""

import asyncio

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part


class Booking(AgentExecutor):
    """Books a table."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            question = updater.new_agent_message([Part(text="For which day?")])
            await updater.requires_input(question)
            return
        await updater.start_work(updater.new_agent_message([Part(text="Looking for a table")]))
        day = context.get_user_input()
        for at, words in enumerate(("Table 7 is yours ", f"on {day}.")):
            await updater.add_artifact([Part(text=words)], artifact_id="booking", append=at > 0, last_chunk=at == 1)
            await asyncio.sleep(0)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self._stopped.add(context.task_id)  # whatever was begun elsewhere is to be undone here


executor = Booking()
