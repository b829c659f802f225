"""Channels of agent-relay as agents: a task is posted to a channel, and what an agent there says is DONE is its answer.

`RelayA2AAdapter` is the agent; `local` has one with a broker and a process of its own, `agent` the kind for settings.
"""

from accord.agents.relay.adapter import AdapterMetadata, RelayA2AAdapter

__all__ = ["AdapterMetadata", "RelayA2AAdapter"]
