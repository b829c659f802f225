"""The task's id under whichever of its three names a caller uses (B-16).

Only for dialects whose callers mix spellings; what a dialect writes is its own.
"""

from msgspec import Struct, field

from accord.protocol.codec import invalid_field


class AnyId(Struct, kw_only=True):
    """The members that may hold a task's id; an empty one counts as missing."""

    id: str | None = None
    task_id: str | None = field(default=None, name="task_id")
    camel_id: str | None = field(default=None, name="taskId")

    def task(self, name: str) -> str:
        """Return the task's id, or refuse its absence under the `name` that the dialect uses."""
        found = self.id or self.own_task()
        if not found:
            raise invalid_field(name, "Required field is missing")
        return found

    def own_task(self) -> str | None:
        """Return the task's id where `id` is the id of something else."""
        return self.task_id or self.camel_id or None
