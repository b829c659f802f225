"""Calls an agent, wherever it is: `python examples/call.py http://localhost:8000`."""

import asyncio
import sys

from accord import BlockingClient, Client


async def main(url: str) -> None:
    async with Client.connect(url) as client:
        print(f"{client.card.name} speaks {client.peer.endpoint}")

        # Ask and wait for the answer.
        said = await client.send_text("a table for two")
        print(f"{said.status.name}: {said.text}")

        # It may be a question: the same task goes on with the answer.
        if said.is_question and said.task_id:
            task = client.task(said.task_id, context_id=said.context_id)
            said = await (await task.reply("Friday"))
            print(f"{said.status.name}: {said.text}")

        # Or listen while it answers. A connection that breaks is taken up where it broke.
        speech = client.stream_text("a table for ten")
        async for piece in speech:
            print(piece, end="", flush=True)
        print(f" [{speech.status.name if speech.status else 'answered'}]")

        # Or do not wait at all: an id is enough to come back later, from another process as well.
        begun = await client.start("a table for four")

    async with Client.connect(url) as later:
        task = later.task(begun.id)
        if (await task).is_question:
            await task.reply("Sunday")
            print((await task).text)


def script(url: str) -> None:
    """The same without async."""
    with BlockingClient(url) as client:
        print(client.send_text("a table for one").text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    script(sys.argv[1])
