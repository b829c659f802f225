"""The official SDK's `AgentExecutor` as an agent: code written for its server, unchanged, hosted here.

`executor` has the agent, and `v1` and `v03` one version of the SDK's types each. Nothing of the SDK is
imported before an agent is made.
"""

from accord.agents.a2a_sdk.executor import KIND

__all__ = ["KIND"]
