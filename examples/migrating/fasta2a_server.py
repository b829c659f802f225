"""A server of fasta2a, as one has it before: `python -m examples.migrating.fasta2a_server`."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fasta2a import FastA2A

from examples.quickstarts.fasta2a_agent import worker

PORT = int(os.environ.get("PORT", "9000"))


@asynccontextmanager
async def lifespan(app: FastA2A) -> AsyncIterator[None]:
    async with app.task_manager, worker.run():
        yield


app = FastA2A(
    storage=worker.storage, broker=worker.broker, name="shouter", url=f"http://localhost:{PORT}", lifespan=lifespan
)

if __name__ == "__main__":
    uvicorn.run(app, host="localhost", port=PORT)
