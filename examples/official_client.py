"""The client of the official SDK calls an agent: `python examples/official_client.py http://localhost:8000 Ada`.

It is in `pip install 'a2a-sdk[http-server]'` and knows nothing of accord.
"""

import asyncio
import sys

from a2a.client import A2AClientError, create_client
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types import Role, SendMessageRequest


async def main(url: str, text: str) -> None:
    async with await create_client(url) as client:
        async for event in client.send_message(SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))):
            print(get_stream_response_text(event), end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Name an agent and say something to it: python examples/official_client.py URL TEXT")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except A2AClientError as error:
        sys.exit(str(error))
