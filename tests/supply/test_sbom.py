"""`make sbom` lists everything that is shipped, in a form that others can read."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import accord
from requirements.locked import ROOT, RUNTIME, bundled, pins

Bom = dict[str, Any]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "requirements.sbom", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == folder
    return Path(done.stdout.strip()).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bom(text: str) -> Bom:
    found: Bom = json.loads(text)
    return found


def test_it_is_valid(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"library"', '"thing"')) is not None


def test_the_sbom_lists_locked_packages(bom: Bom) -> None:
    listed = {component["purl"].replace("%40", "@") for component in bom["components"]}
    python = {f"pkg:pypi/{pin.name.lower()}@{pin.version}" for pin in pins(RUNTIME)}
    pages = {f"pkg:npm/{script.name}@{script.version}" for script in bundled()}
    assert listed == python | pages
    assert (bom["metadata"]["component"]["name"], bom["metadata"]["component"]["version"]) == (
        "accord",
        accord.__version__,
    )


def test_the_sbom_lists_dependencies(bom: Bom) -> None:
    needs = {one["ref"]: set(one.get("dependsOn", ())) for one in bom["dependencies"]}
    of_ours = {ref.partition("@")[0] for ref in needs["accord"]}
    assert {"pkg:pypi/aiohttp", "pkg:pypi/msgspec", "pkg:npm/react"} <= of_ours
    assert "pkg:pypi/multidict" not in of_ours
    (aiohttp,) = (ref for ref in needs if ref.startswith("pkg:pypi/aiohttp@"))
    assert any(ref.startswith("pkg:pypi/multidict@") for ref in needs[aiohttp])


def test_licences_and_digests_are_there(bom: Bom) -> None:
    bare = [component["name"] for component in bom["components"] if not component.get("licenses")]
    assert set(bare) <= {"colorama", "tzdata"}, "they are for another system and not installed here"
    pages = [component for component in bom["components"] if component["purl"].startswith("pkg:npm/")]
    assert all(len(component["hashes"][0]["content"]) == 128 for component in pages)
    locked = {f"pkg:pypi/{pin.name.lower()}@{pin.version}": set(pin.hashes) for pin in pins(RUNTIME)}
    assert all(locked.values())
    listed = {
        component["purl"]: {
            digest["content"]
            for file in component["externalReferences"]
            for digest in file["hashes"]
            if (file["type"], digest["alg"]) == ("distribution", "SHA-256")
        }
        for component in bom["components"]
        if component not in pages
    }
    assert listed == locked


def test_the_sbom_command_has_help(tmp_path: Path) -> None:
    for option, status in (("--help", 0), ("--dance", 2)):
        done = subprocess.run(
            [sys.executable, "-m", "requirements.sbom", option],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, "usage: python -m requirements.sbom" in done.stdout + done.stderr) == (status, True)
    assert list(tmp_path.iterdir()) == []
