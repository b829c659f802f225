"""The agents of a channel of agent-relay as one A2A agent: `RELAY_API_KEY=rk_live_... python relay_agent.py`.

Every task is posted to the channel, tagged with its id. Whoever answers `DONE: [a2a:<id>] ...` has done it.
"""

import os

from accord import RelayA2AAdapter, serve_agent

workspace = RelayA2AAdapter(
    relay_api_key=os.environ.get("RELAY_API_KEY", ""),
    channel="general",
    target_agent="Worker1",
    base_url=os.environ.get("RELAY_BASE_URL", "https://api.relaycast.dev"),
    poll_interval=float(os.environ.get("RELAY_POLL_SECONDS", "2")),
)

if __name__ == "__main__":
    serve_agent(workspace, port=int(os.environ.get("PORT", "9000")))
