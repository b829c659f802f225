"""The 0.3 SDK's half of the codec benchmark, run by an interpreter that has it: one line in, one time out."""

import json
import sys

from a2a import types

from bench.timing import microseconds


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        kind, wire = getattr(types, asked["type"]), asked["json"]
        taken = microseconds(
            lambda kind=kind, wire=wire: kind.model_validate_json(wire).model_dump_json(exclude_none=True)
        )
        print(taken, flush=True)


main()
