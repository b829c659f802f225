"""The image: read by hadolint, and what it says to do is done in a folder, with the paths moved there."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from accord import __version__
from accord.server.http_server import GRANIAN_KILL_SECONDS
from accord.server.settings_loader import load
from accord.server.startup import exposure_problem
from tests.deploy.dockerfile import Stage, is_sent, stages
from tests.ports import free_port
from tests.serve.flowing import until
from tests.serve.running import BOUND_SECONDS, ROOT, V1, rpc, said

FILE = ROOT / "deploy" / "Dockerfile"
IGNORE = ROOT / ".dockerignore"
BUILD, FINAL = stages(FILE)
NOBODY = 10001

PLACES = ("/opt/accord", "/dist", "/src", "/etc/accord", "/data")
"""The absolute paths that the file speaks of."""

MEGABYTES = 100
"""What the environment may come to; the base image is about 125 MB."""

UNREACHABLE = re.compile(r"No matching distribution|Could not find a version|Failed to establish|Temporary failure")


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [FILE, ROOT / "examples" / "deploy" / "Dockerfile"], ids=["ours", "example"])
def test_hadolint_has_no_complaint(file: Path) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False, timeout=BOUND_SECONDS)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_small_unprivileged_and_stops_on_sigterm() -> None:
    assert FINAL.base == BUILD.base.replace("-bookworm", "-slim-bookworm"), "the same Python"
    assert FINAL.one("USER").text == f"{NOBODY}:{NOBODY}"
    assert [FINAL.one("ENTRYPOINT").words, FINAL.one("CMD").words] == [["accord"], ["serve"]]
    assert FINAL.one("ENTRYPOINT").is_exec, "a shell would keep the signal to itself"
    assert FINAL.one("STOPSIGNAL").text == "SIGTERM"
    assert FINAL.one("VOLUME").text == FINAL.one("WORKDIR").text == FINAL.pairs("ENV")["HOME"] == "/data"
    assert FINAL.pairs("LABEL")["org.opencontainers.image.version"] == __version__
    assert "curl" not in FILE.read_text()


def copied(stage: Stage) -> list[tuple[list[str], str]]:
    """What is copied from the tree, and where to."""
    found = [one.words for one in stage.all("COPY") if not one.text.startswith("--from")]
    return [(words[:-1], words[-1]) for words in found]


def test_the_build_context_holds_only_copied_files() -> None:
    sources = [source for stage in (BUILD, FINAL) for names, _ in copied(stage) for source in names]
    for source in sources:
        assert (ROOT / source).exists()
        assert is_sent(source, IGNORE), source
    for secret in (".env", ".git/config", ".venv/bin/python", "web/package.json", "tests/conftest.py", "accord.db"):
        assert not is_sent(secret, IGNORE), secret
    assert not is_sent("src/accord/__pycache__/a.cpython-311.pyc", IGNORE)
    assert is_sent("src/accord/_web/index.html", IGNORE)


def test_image_settings_serve_and_stop_in_time() -> None:
    settings = load(ROOT / "deploy" / "image" / "accord.toml", {}).settings
    assert exposure_problem(settings) is None, "it is not open to strangers"
    server = settings.server
    assert (server.host, f"{server.port}") == ("0.0.0.0", FINAL.one("EXPOSE").text)
    longest = server.drain_seconds + server.grace_seconds + GRANIAN_KILL_SECONDS
    assert f"up to {longest:.0f} s" in FILE.read_text()


# --- what it does -----------------------------------------------------------------------------------------------------


class Image(NamedTuple):
    """What would be in the image, in a folder."""

    root: Path
    user: int | None

    def moved(self, text: str) -> str:
        """Put the folder in front of absolute paths."""
        places = "|".join(map(re.escape, PLACES))
        return re.sub(rf"(?<![\w.])(?:{places})(?![\w-])", lambda match: f"{self.root}{match[0]}", text)

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes, and nothing of ours."""
        given = {name: self.moved(value) for name, value in FINAL.pairs("ENV").items()}
        return given | {"PATH": given["PATH"].replace("$PATH", os.defpath)}

    def start(self, *command: str, **env: str) -> subprocess.Popen[str]:
        """Start a process in it."""
        found = shutil.which(command[0], path=self.env["PATH"])
        assert found is not None
        return subprocess.Popen(
            [found, *map(self.moved, command[1:])],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=f"{self.root}/data",
            env=self.env | env,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )

    def run(self, *command: str, **env: str) -> tuple[int, str]:
        """Run a process in it to its end."""
        process = self.start(*command, **env)
        said, _ = process.communicate(timeout=BOUND_SECONDS)
        return process.returncode, said


def interpreter() -> tuple[str, int | None]:
    """A Python for the image, and whom it can be run as: another user than us, if we are root and they may."""
    here = str(getattr(sys, "_base_executable", sys.executable))
    if os.getuid() == 0:
        for found in (here, *filter(None, [shutil.which("python3", path="/usr/local/bin:/usr/bin")])):
            told = [found, "-c", f"import sys, venv; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"]
            try:
                done = subprocess.run(told, user=NOBODY, group=NOBODY, cwd="/", check=False, timeout=BOUND_SECONDS)
            except PermissionError:
                continue
            if done.returncode == 0:
                return found, NOBODY
    return here, None


def shell(command: str, folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        ["/bin/sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"what is pinned cannot be got here: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def copy(image: Image, stage: Stage, folder: Path) -> None:
    """Do one stage's copying, with the paths in texts moved."""
    for names, where in copied(stage):
        target = Path(image.moved(where)) if where.startswith("/") else folder / where
        for name in names:
            source = ROOT / name
            there = target / source.name if where.endswith("/") else target
            there.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, there, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
            elif source.suffix == ".toml" and name.startswith("deploy"):
                there.write_text(source.read_text().replace("////data/", f"///{image.root}/data/"))
            else:
                shutil.copy(source, there)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """What the file makes. It cannot live among pytest's folders, which are closed to others."""
    with tempfile.TemporaryDirectory(prefix="accord-image-") as name:
        python, user = interpreter()
        made = Image(Path(name), user)
        made.root.chmod(0o755)
        base, source = made.root / "base", made.root / "src"
        uv = Path(sys.executable).parent / "uv"
        subprocess.run([uv, "venv", "--quiet", "--seed", "--python", python, base], check=True, timeout=BOUND_SECONDS)
        pip = {
            name: value for name, value in os.environ.items() if not name.startswith(("ACCORD_", "PYTHON", "VIRTUAL"))
        }
        env = pip | BUILD.pairs("ENV") | {"PATH": f"{base}/bin:{os.environ['PATH']}"}
        source.mkdir()
        copy(made, BUILD, source)
        for run in BUILD.all("RUN"):
            shell(made.moved(run.text), source, env)
        copy(made, FINAL, source)
        copy(made, BUILD, source)
        data = made.root / "data"
        data.mkdir(mode=0o700)
        if user is not None:
            os.chown(data, user, user)
        yield made


def files(folder: Path) -> dict[str, int]:
    """The sizes of the files below a folder."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.stat().st_size for path in found}


def test_the_environment_is_minimal(image: Image) -> None:
    inside = files(image.root / "opt" / "accord")
    megabytes = sum(inside.values()) / 1e6
    assert megabytes < MEGABYTES, f"{megabytes:.0f} MB"
    packages = {name.partition("site-packages/")[2].partition("/")[0] for name in inside if "site-packages/" in name}
    assert {"accord", "uvicorn", "asyncpg"} <= packages
    assert not packages & {"pip", "setuptools", "pytest", "hatchling", "opentelemetry"}
    pages = [name for name in inside if "accord/_web/index.html" in name]
    assert len(pages) == 1, "the console is in it"


def test_it_serves_is_found_healthy_and_drains(image: Image) -> None:
    before = files(image.root / "opt")
    port = str(free_port())
    given = {"ACCORD_SERVER__HOST": "127.0.0.1", "ACCORD_SERVER__PORT": port, "ACCORD_SERVER__DRAIN_SECONDS": "0.2"}
    url = f"http://127.0.0.1:{port}"
    health = FINAL.one("HEALTHCHECK").text
    check = re.search(r"CMD (\[.*\])", health)
    assert check is not None
    probe = [word.strip('" ') for word in check[1].strip("[]").split(",")]
    assert image.run(*probe, **given)[0] == 1, "nobody is there"
    code, key = image.run(
        "accord", "apikeys", "create", "--name", "me", "--owner", "me", "--role", "admin", "-o", "json"
    )
    assert code == 0, key
    process = image.start(*FINAL.one("ENTRYPOINT").words, *FINAL.one("CMD").words, **given)
    try:
        until(lambda: image.run(*probe, **given)[0] == 0 or None)
        assert image.run(*probe[:-1], "/readyz", **given)[0] == 0
        owner = (image.root / "data" / "accord.db").stat()
        assert owner.st_uid == (os.getuid() if image.user is None else image.user)
        assert stat.S_IMODE(owner.st_mode) == 0o600
        body = rpc("SendMessage", message=said("hello"))
        assert httpx.post(url, json=body, headers=V1, timeout=BOUND_SECONDS).status_code == 401
        secret = re.search(r'"key":\s*"([^"]+)"', key)
        assert secret is not None
        answer = httpx.post(url, json=body, headers=V1 | {"X-API-Key": secret[1]}, timeout=BOUND_SECONDS)
        assert "hello" in answer.text
        page = httpx.get(url, headers={"accept": "text/html"}, timeout=BOUND_SECONDS, follow_redirects=True)
        assert "<html" in page.text, "the console"
        process.send_signal(signal.Signals[FINAL.one("STOPSIGNAL").text])
        said_last, _ = process.communicate(timeout=BOUND_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in said_last) == (0, False), said_last
    assert files(image.root / "opt") == before, "nothing is written but in /data"
