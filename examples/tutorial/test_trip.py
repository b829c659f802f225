"""Step 6, a test of an agent: `pytest examples/tutorial/test_trip.py`."""

import asyncio

from accord.testing import running
from examples.tutorial.asking import guide
from examples.tutorial.trip import trip
from examples.tutorial.weather import weather


def test_the_trip_is_planned():
    async def talk() -> str:
        async with running(trip, weather, guide) as a2a:  # in this process, in memory, otherwise as `accord serve` does
            asked = await a2a.send_text("Lisbon")
            return await a2a.ask_text("Sunday", task=asked)

    assert asyncio.run(talk()) == "Lisbon: sunny, 24 degrees. Lisbon on Sunday: the museum."
