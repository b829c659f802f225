"""Metadata keys for facts that have no field in A2A 1.0.

Metadata belongs to users, so a value of an unexpected type under one of these keys is never an error. Readers use it
only if it has the documented type.
"""

SCHEMA = "schema"
"""Part: the JSON Schema (an object) that the sender gave with the part's data."""

REFERENCE = "reference"
"""Part: `true` on a url part that links to an external resource instead of carrying a file."""

ROLE = "role"
"""Message: the sender's finer role (`system`, `tool`) where A2A only has user and agent."""

CREATED_AT = "createdAt"
"""Task and artifact: ISO 8601 time of creation, as another system stated it."""

TASK_CONFIG = "task_config"
"""Send request: `{"timeout": milliseconds, "priority": "low" | "normal" | "high"}`."""

STREAM_CONFIG = "stream_config"
"""Send request: `{"include_intermediates": bool, "buffer_size": bytes}`."""

HOLD = "accord/hold"
"""Send request: `true` creates a held task, which does not start until it is executed. The key contains our name so
that a caller's own word of the same name cannot keep a task from running.
"""

REASON = "reason"
"""Cancel request: why the caller cancels."""

ORIGINAL_STATE = "originalState"
"""Task: the exact state, where its dialect has only a coarser one."""

USAGE = "usage"
"""Task and status: usage so far, as `{"inputTokens", "outputTokens", "totalTokens", "cost", "models"}`."""

BUDGET = "budget"
"""Message: limits of its task, as `{"maxTokens", "maxCost", "deadline"}`. Unlike the other keys, an invalid value is
refused: a caller that limits spending must not find out later that nothing was limited.
"""
