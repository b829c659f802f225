"""The feed of a real server under load: many pages over real connections, many updates, and nobody misses one."""

import asyncio
import json
from functools import partial
from pathlib import Path

import httpx

from accord.protocol.sse import Decoder
from tests.bounds import LONG_SECONDS, bounded
from tests.serve.running import running

PAGES, TASKS, REPORTS = 50, 10, 30

AGENT = """
from accord import Context, agent

@agent(name="Reporter", description="Reports as often as it is told")
async def reporter(ctx: Context) -> str:
    for number in range(int(ctx.text)):
        await ctx.status(f"step {number}")
    return "done"
"""


async def told(port: int, wanted: int, is_open: asyncio.Event) -> list[tuple[str, int, str]]:
    """What one page is told, until it was told so much."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/events HTTP/1.0\r\nHost: localhost\r\n\r\n")
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head
        decoder = Decoder()
        found: list[tuple[str, int, str]] = []
        while len(found) < wanted:
            data = await reader.read(65536)
            assert data, f"the server ended a page after {len(found)} events"
            for frame in decoder.feed(data):
                if frame.event == "hello":
                    is_open.set()
                elif frame.event == "task":
                    row = json.loads(frame.data)
                    found.append((row["id"], row["seq"], row["status"]))
        return found
    finally:
        writer.close()


@partial(bounded, seconds=LONG_SECONDS)
async def test_fifty_pages_hear_of_every_update_of_a_busy_server(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(AGENT)
    wanted = TASKS * (REPORTS + 2)  # each works, reports and ends
    with running(tmp_path, "busy:reporter", "--store", f"sqlite:///{tmp_path}/accord.db") as server:
        async with httpx.AsyncClient() as client, asyncio.TaskGroup() as group:
            opened = [asyncio.Event() for _ in range(PAGES)]
            pages = [group.create_task(told(server.port, wanted, is_open)) for is_open in opened]
            for is_open in opened:
                await is_open.wait()
            body = {"agent": "reporter", "text": str(REPORTS)}
            for _ in range(TASKS):
                answer = await client.post(f"{server.url}/api/tasks", json=body, timeout=LONG_SECONDS)
                assert answer.status_code == 201, answer.text
    first = pages[0].result()
    assert len(set(first)) == wanted
    assert all(page.result() == first for page in pages)
    for task_id in {id for id, _, _ in first}:
        numbers = [seq for id, seq, _ in first if id == task_id]
        assert numbers == sorted(numbers)
