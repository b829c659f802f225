"""Metadata keys for facts that A2A 1.0 has no field for.

Metadata belongs to users, so a value of an unexpected type under one of these keys is never an error: readers use it
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
"""Send request: `true` makes a task that nobody works on until it is executed. It has our name in it: a word that
means something else to a caller must not keep a task from being run."""

REASON = "reason"
"""Cancel request: why the caller cancels."""

ORIGINAL_STATE = "originalState"
"""Task: the exact state, where the dialect it came through has only a coarser one."""

USAGE = "usage"
"""Task and status: `{"inputTokens", "outputTokens", "totalTokens", "cost", "models"}`, what it has used so far."""

BUDGET = "budget"
"""Message: `{"maxTokens", "maxCost", "deadline"}`, what its task may use. Unlike the others it is refused if it is
wrong: who limits what is spent must not find out later that nothing was limited."""
