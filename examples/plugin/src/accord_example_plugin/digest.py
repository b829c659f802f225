"""A type of step: it says the digest of a file, which a workflow can compare or hand on."""

import asyncio
import hashlib

from accord.api import NoOptions
from accord.workflows import Result, Scene, StepExecutorType


class Digest(NoOptions, frozen=True, kw_only=True):
    """What a step is given with `with`."""

    file: str
    algorithm: str = "sha256"


async def digest(scene: Scene) -> Result:
    """Return the digest of a file below where the step works."""
    given = scene.given(Digest)
    try:
        data = await asyncio.to_thread((scene.place / given.file).read_bytes)
        found = hashlib.new(given.algorithm, data).hexdigest()
    except (OSError, ValueError) as error:
        return Result(ok=False, error=f"There is no digest of {given.file}: {error}")
    await scene.post(f"{given.file}: {len(data)} bytes")
    return Result(ok=True, output=found)


STEP = StepExecutorType(do=digest, options=Digest)
