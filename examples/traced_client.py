"""A program whose calls are part of a trace: what the agent does, here or elsewhere, is found below them.

pip install 'accord[otel]'
OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 python examples/traced_client.py http://localhost:8000
"""

import asyncio
import sys

from opentelemetry import trace

from accord.client import Client
from accord.telemetry.tracing import start


async def main(url: str) -> None:
    start()
    with trace.get_tracer("shop").start_as_current_span("order"):
        async with Client.connect(url) as client:
            print((await client.send_text("hello")).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
