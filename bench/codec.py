"""Reading, validating and writing A2A JSON: ours against both generations of the official SDK.

Each contender gets the same content in its own version's form, decodes and validates the bytes into its types, and
encodes them again. SDK 1.x runs in this process; SDK 0.3 needs other pins, so it runs beside it and is asked in turn:
once for its pydantic types at their best ("pydantic 0.3"), once as its server uses them ("a2a-sdk 0.3").
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from a2a.types import a2a_pb2
from google.protobuf import json_format

from accord.model import Artifact, GetRequest, Message, Part, Role, SendRequest, Task, TaskState, TaskStatus
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName, Operation
from bench.report import Table, Target
from bench.setting import Setting
from bench.timing import microseconds

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".peers" / "a2a-sdk-03" / "bin" / "python"
V1, V03 = DIALECTS[DialectName.V1], DIALECTS[DialectName.V03]
ASKED = GetRequest(id="t")

RATIOS = [
    ("v1", "a2a-sdk 1.x"),
    ("v1", "pydantic 0.3"),
    ("v1", "a2a-sdk 0.3"),
    ("v03", "pydantic 0.3"),
    ("v03", "a2a-sdk 0.3"),
]
MUST = {("v1", "a2a-sdk 1.x"): 30, ("v1", "pydantic 0.3"): 5}

MESSAGES = 100
TEXT = "The quick brown fox jumps over the lazy dog, again and again, until the task is done. " * 4


def message(number: int) -> Message:
    role = Role.AGENT if number % 2 else Role.USER
    return Message(
        message_id=f"0192f0c1-7d3a-7000-8000-{number:012d}",
        role=role,
        parts=(Part(text=TEXT), Part(data={"step": number, "tags": ["a", "b"]}))
        if number % 10 == 0
        else (Part(text=TEXT),),
        context_id="0192f0c1-7d3a-7000-8000-00000000000c",
        task_id="0192f0c1-7d3a-7000-8000-00000000000a",
    )


def task() -> Task:
    return Task(
        id="0192f0c1-7d3a-7000-8000-00000000000a",
        context_id="0192f0c1-7d3a-7000-8000-00000000000c",
        status=TaskStatus(state=TaskState.COMPLETED, timestamp="2026-01-02T03:04:05.678Z"),
        history=tuple(message(number) for number in range(MESSAGES)),
        artifacts=(Artifact(artifact_id="a", parts=(Part(text=TEXT),)),),
    )


def ours(dialect: Any, operation: Operation, wire: bytes) -> Callable[[], object]:
    if operation is Operation.SEND:
        return lambda: dialect.encode_request(operation, dialect.decode_request(operation, wire))
    return lambda: dialect.encode_result(operation, dialect.decode_result(operation, wire, ASKED))


def official_1x(kind: Any, wire: bytes) -> Callable[[], object]:
    return lambda: json_format.MessageToJson(json_format.Parse(wire, kind()), indent=None)


class Official03:
    """The 0.3 SDK in its own interpreter, asked one measurement at a time."""

    def __init__(self) -> None:
        if not PEER.exists():
            subprocess.run(["make", ".peers/a2a-sdk-03/.installed"], cwd=ROOT, check=True)
        script = [str(PEER), "-m", "bench.codec_v03"]
        self._process = subprocess.Popen(script, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, kind: str, wire: bytes, *, served: bool = False) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"type": kind, "json": wire.decode(), "served": served}) + "\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


def run(setting: Setting) -> list[Table]:
    rounds = setting.rounds(7)
    request, answer = SendRequest(message=message(0)), task()
    wires = {
        "message": (
            Operation.SEND,
            V1.encode_request(Operation.SEND, request),
            V03.encode_request(Operation.SEND, request),
        ),
        f"task of {MESSAGES} messages": (
            Operation.GET,
            V1.encode_result(Operation.GET, answer),
            V03.encode_result(Operation.GET, answer),
        ),
    }
    types = {"message": (a2a_pb2.SendMessageRequest, "MessageSendParams")}
    peer = Official03()
    rows: dict[str, dict[str, float]] = {}
    for name, (operation, wire, wire_03) in wires.items():
        kind, kind_03 = types.get(name, (a2a_pb2.Task, "Task"))
        contenders: dict[str, Callable[[], float]] = {
            "accord v1": lambda o=operation, w=wire: microseconds(ours(V1, o, w)),
            "a2a-sdk 1.x": lambda k=kind, w=wire: microseconds(official_1x(k, w)),
            "accord v03": lambda o=operation, w=wire_03: microseconds(ours(V03, o, w)),
            "pydantic 0.3": lambda k=kind_03, w=wire_03: peer.measure(k, w),
            "a2a-sdk 0.3": lambda k=kind_03, w=wire_03: peer.measure(k, w, served=True),
        }
        taken: dict[str, list[float]] = {contender: [] for contender in contenders}
        for _ in range(rounds):
            for contender, measure in contenders.items():
                taken[contender].append(measure())
            print(".", end="", file=sys.stderr, flush=True)
        rows[name] = {contender: statistics.median(times) for contender, times in taken.items()}
        rows[name] |= {f"{one} vs {other}": rows[name][other] / rows[name][f"accord {one}"] for one, other in RATIOS}
    peer.close()
    print(file=sys.stderr)
    targets = tuple(
        Target(name, f"{one} vs {other}", at_least=least) for name in rows for (one, other), least in MUST.items()
    )
    columns = (*next(iter(rows.values())),)
    return [Table("Decode, validate and encode", "CPU microseconds", columns, rows, targets)]
