"""Calls an agent that asks who we are: `python examples/call_with_keys.py https://agents.example keys.json`."""

import asyncio
import sys

from accord import Client
from accord.client.credentials import KeyManager


async def main(url: str, file: str) -> None:
    async with Client.connect(url, keys=KeyManager(file)) as client:
        print((await client.send_text("hello")).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
