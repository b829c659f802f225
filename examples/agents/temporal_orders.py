"""A Temporal workflow and its worker, as users of Temporal have them: `python examples/agents/temporal_orders.py`.

It knows nothing of agents: it takes a text, waits for a signal, and says by a query how it stands.
"""

import asyncio
import os
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "orders"


@workflow.defn
class Order:
    """An order that is asked about before it is made."""

    def __init__(self) -> None:
        self._answers: list[str] = []
        self._status: Any = "looking for it"

    @workflow.run
    async def run(self, thing: str) -> dict[str, Any]:
        self._status = {"question": f"One {thing} is 12 euros. Shall I order it?"}
        await workflow.wait_condition(lambda: bool(self._answers))
        self._status = "ordering"
        return {"thing": thing, "ordered": self._answers[0].lower().startswith("y")}

    @workflow.signal
    def message(self, text: str) -> None:
        """What the caller says later."""
        self._answers.append(text)

    @workflow.query
    def status(self) -> Any:
        """What the caller is told meanwhile: a text, or a question."""
        return self._status


def worker(client: Client) -> Worker:
    return Worker(client, task_queue=QUEUE, workflows=[Order])


async def main() -> None:
    address = os.environ.get("TEMPORAL_ADDRESS", "localhost:7233")
    await worker(await Client.connect(address)).run()


if __name__ == "__main__":
    asyncio.run(main())
