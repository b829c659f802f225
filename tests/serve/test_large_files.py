"""Files too large for one answer have signed addresses, and `accord task download` fetches them piece by piece."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from tests.abuse.server import Server, serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is looked at through /proc")

AGENT = f"{Path(__file__).parent / 'filing.py'}:filer"
MB = 1024 * 1024
SIZE = 80


def made(server: Server, *sizes: int) -> str:
    """Have files of so many megabytes made, and return the task's id."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": " ".join(map(str, sizes))}]}
    answer = server.ask("POST", "/message:send", json.dumps({"message": message}).encode())
    task = answer.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    return str(task["id"])


def peak(server: Server, *, anew: bool = False) -> int:
    """Return the most memory that the server has had, or forget it."""
    if anew:
        Path(f"/proc/{server.pid}/clear_refs").write_text("5", encoding="ascii")
    return server.status("VmHWM")


def test_a_file_above_the_answer_limit_is_downloaded_in_flat_memory(tmp_path: Path) -> None:
    settings = {"blobs": f"dir://{tmp_path}/blobs"}
    with serving(tmp_path, settings, AGENT) as server:
        id = made(server, SIZE)
        before = peak(server, anew=True)
        answer = server.ask("GET", f"/tasks/{id}", Host=f"localhost:{server.port}")
        part = answer.json()["artifacts"][0]["parts"][0]
        assert part["url"].startswith(f"http://localhost:{server.port}/files/")
        assert "raw" not in part
        saved = subprocess.run(
            [sys.executable, "-c", _MEASURED, id, f"http://127.0.0.1:{server.port}", str(tmp_path / "out")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert saved.returncode == Exit.DONE, saved.stderr
        assert int(saved.stderr.splitlines()[-1]) < 1.5 * SIZE * MB, "what Python needs, and not the file"
        assert peak(server) - before < SIZE * MB / 2
        content = (tmp_path / "out" / "0.bin").read_bytes()
        assert (len(content), content[:8], content[-8:]) == (SIZE * MB, b"begins 0", b"ends 000")


_MEASURED = """
import sys
from accord.cli import main
sys.argv = ["accord", "task", "download", sys.argv[1], "-a", sys.argv[2], "--to", sys.argv[3]]
try:
    main()
finally:
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(lines["VmHWM"].split()[0]) * 1024, file=sys.stderr)
"""


def test_large_files_have_addresses_in_every_binding(tmp_path: Path) -> None:
    with serving(tmp_path, {"limits": {"inline_files": 2 * MB}}, AGENT) as server:
        id = made(server, 1, 3, 1)
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": id}}
        tasks = {
            "rest": server.ask("GET", f"/tasks/{id}").json(),
            "jsonrpc": server.ask("POST", "/", json.dumps(call).encode(), A2A_Version="1.0").json()["result"],
            "list": server.ask("GET", "/tasks?includeArtifacts=true").json()["tasks"][0],
        }
        for name, task in tasks.items():
            kinds = [sorted({"raw", "url"} & part.keys()) for one in task["artifacts"] for part in one["parts"][:1]]
            assert kinds[:3] == [["raw"], ["url"], ["raw"]], name
        path = tasks["rest"]["artifacts"][1]["parts"][0]["url"].removeprefix("http://localhost")
        fetched = server.ask("GET", path)
        assert (fetched.status, len(fetched.body), fetched.body[:8]) == (200, 3 * MB, b"begins 1")
        head = server.ask("HEAD", path)
        assert (head.status, head.header("content-length")) == (200, str(3 * MB))


def test_a_stream_gives_addresses_as_well(tmp_path: Path) -> None:
    with serving(tmp_path, {"limits": {"inline_files": 2 * MB}}, AGENT) as server, server.connect() as wire:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "3"}]}
        wire.ask("POST", "/message:stream", json.dumps({"message": message}).encode())
        head = wire.head()
        events = wire.body(head).decode()
        updates = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
        part = next(one["artifactUpdate"]["artifact"]["parts"][0] for one in updates if "artifactUpdate" in one)
        fetched = server.ask("GET", part["url"].removeprefix("http://localhost"))
        assert (fetched.status, len(fetched.body)) == (200, 3 * MB)
