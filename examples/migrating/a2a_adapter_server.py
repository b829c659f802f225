"""A flow of n8n behind a2a-adapter, as one has it before: `python -m examples.migrating.a2a_adapter_server`."""

import os

from a2a_adapter import N8nAdapter, serve_agent

adapter = N8nAdapter(
    webhook_url=os.environ.get("N8N_URL", "http://localhost:5678/webhook/assistant"),
    message_field="chatInput",
    default_inputs={"channel": "a2a"},
    timeout=120,
    name="assistant",
    description="Answers questions about orders",
)

if __name__ == "__main__":
    serve_agent(adapter, host="localhost", port=int(os.environ.get("PORT", "9000")))
