"""An agent inside an application that does other things as well: `uvicorn examples.mounted:app`."""

from fastapi import FastAPI

from accord import to_a2a
from examples.booking import booking

agents = to_a2a(booking, store="sqlite://:memory:")
app = FastAPI(lifespan=agents.lifespan)
app.mount("/booking", agents)


@app.get("/")
def index() -> dict[str, str]:
    """Say where the agent is."""
    return {"card": "/booking/.well-known/agent-card.json"}
