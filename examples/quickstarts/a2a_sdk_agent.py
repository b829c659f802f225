"""An executor of the official SDK, as it is: it knows nothing of accord."""

from a2a.helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part


class Booking(AgentExecutor):
    """Books a table."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task or new_task_from_user_message(context.message)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
            await updater.requires_input(updater.new_agent_message([Part(text="For which day?")]))
            return  # the answer calls `execute` again, on any node
        await updater.add_artifact([Part(text=f"Table 7 is yours on {context.get_user_input()}.")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...


executor = Booking()
