"""The A2A extensions that Accord defines, by their URI.

An extension is a promise on a card (A2A 1.0, 4.6); none of these changes what is on the wire, so nobody needs to
declare one. The server's cards make them, the client relies on them.
"""

IDEMPOTENT_SEND = "urn:accord:a2a:idempotent-send:1"
"""The same message, its id and all it says, from the same caller is the same task: it may be sent again."""

NUMBERED_EVENTS = "urn:accord:a2a:numbered-events:1"
"""The `id` of a server-sent event is its number in the task's own log: whoever subscribes after one (`Last-Event-ID`)
gets the task as it was then, under that number, and every later event once."""
