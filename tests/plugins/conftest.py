"""The example package, built and installed as anybody's would be: outside of the tree."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accord.entries import registered
from tests.databases import postgres
from tests.serve.running import ROOT

__all__ = ["postgres"]

EXAMPLE = ROOT / "examples" / "plugin"
BUILD = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"


def build(source: Path, folder: Path) -> Path:
    """Build the package in a folder and return its wheel; nothing is fetched for that."""
    copy = folder / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    made = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=copy, capture_output=True, text=True, timeout=60, check=True
    )
    return folder / made.stdout.split()[-1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, beside nothing else; what is on `PYTHONPATH` has it."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel, target = build(EXAMPLE, folder), folder / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)],
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return target


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that puts a package where Python looks for packages; it is gone in the end."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def put(package: str, source: str, group: str, *entries: str) -> None:
        module = package.replace("-", "_")
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(source)
        facts = tmp_path / f"{module}-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(entries))
        registered.cache_clear()

    yield put
    for module in modules:
        sys.modules.pop(module, None)
    registered.cache_clear()
