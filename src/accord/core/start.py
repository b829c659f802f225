"""What a run begins with: whoever takes a message in, or claims work, puts it together; `core.run` goes on from it."""

from msgspec import Struct

from accord.core.interface import Caller
from accord.model import Message, Task
from accord.storage.commands.jobs import Claimed


class Start(Struct, frozen=True, kw_only=True):
    """Everything a run begins with: the task after event `seq`, of which the store has a snapshot after `kept`."""

    job: Claimed
    task: Task
    seq: int
    kept: int
    message: Message
    caller: Caller
    steps: dict[str, str]
    deadline_at: int | None = None
    parent_id: str | None = None
    resumes: bool = False
    has_large: bool = False
    trace: str | None = None
