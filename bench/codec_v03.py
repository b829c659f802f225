"""The 0.3 SDK's half of the codec benchmark, run by an interpreter that has it: one line in, one time out."""

import json
import sys
from functools import partial

from a2a import types
from pydantic import BaseModel

from bench.timing import microseconds


def bare(kind: type[BaseModel], wire: str) -> object:
    """What pydantic can do at best: JSON to model and back without plain data in between."""
    return kind.model_validate_json(wire).model_dump_json(exclude_none=True)


def served(kind: type[BaseModel], wire: str) -> object:
    """What the SDK's server does: JSON to plain data to model, and back."""
    found = kind.model_validate(json.loads(wire))
    return json.dumps(found.model_dump(mode="json", exclude_none=True))


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        work = partial(served if asked["served"] else bare, getattr(types, asked["type"]), asked["json"])
        print(microseconds(work), flush=True)


main()
