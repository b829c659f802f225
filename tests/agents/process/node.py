"""A node in a process of its own, to be killed: it serves one process agent over the store that it is given.

The options of the agent are JSON in the first argument, the store's address is the second; `ready` is printed when the
first message was taken, which is the third argument.
"""

import asyncio
import os
import sys

import msgspec

from accord.a2a import Caller
from accord.agents.process import ProcessAgent, ProcessOptions
from accord.api.agent_types import AgentArguments
from accord.engine.node import Limits
from accord.model import Message, Part, Role, SendConfiguration, SendRequest, Task
from accord.server.application import Application
from accord.server.settings import ServerSettings, Settings


async def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=ProcessOptions)
    agent = ProcessAgent(AgentArguments(options=options, name="coder", env=os.environ))
    limits = Limits(lease_seconds=1.5, poll_seconds=0.1)
    app = Application([agent], Settings(store=sys.argv[2], server=ServerSettings(grace_seconds=0), engine=limits))
    async with app.lifespan():
        message = Message(message_id="first", role=Role.USER, parts=(Part(text=sys.argv[3]),))
        request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
        task = await app.host.default.send(request, Caller())
        assert isinstance(task, Task)
        print(task.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
