"""What agents may change, and that what they changed is seen, however they did it."""

import os
from pathlib import Path

import pytest

from accord.workflows.agent_definition import Files, Permissions
from accord.workflows.permissions import (
    PermissionRules,
    changed_files,
    changed_since,
    describe_permissions,
    find_violation,
    matches,
    resolve_permissions,
    rules_in,
    take_snapshot,
)
from tests.cases import each
from tests.workflows.scenes import git, repository


@each(
    ("pattern", "meant", "not_meant"),
    [
        ("*.py", ["a.py", "deep/er/a.py"], ["a.pyc", "a.py2/b"]),
        ("src", ["src", "src/a", "deep/src/a"], ["src2/a"]),
        ("src/", ["src/a"], ["source"]),
        ("/src", ["src/a"], []),
        ("src/*.py", ["src/a.py"], ["src/deep/a.py", "deep/src/a.py"]),
        ("src/**", ["src/a", "src/deep/a"], ["other/src/a"]),
        ("src/**/a.py", ["src/a.py", "src/deep/er/a.py"], ["src/b.py"]),
        ("**/.env", [".env", "deep/.env"], ["a.env"]),
        ("./docs/?.md", ["docs/a.md"], ["docs/ab.md"]),
        ("[ab].md", ["a.md"], ["c.md"]),
        ("[!ab].md", ["c.md"], ["a.md"]),
        ("a+b(c).txt", ["a+b(c).txt"], ["aab(c).txt"]),
    ],
)
def test_patterns_follow_gitignore(pattern: str, meant: list[str], not_meant: list[str]) -> None:
    assert [path for path in meant if not matches(path, [pattern])] == []
    assert [path for path in not_meant if matches(path, [pattern])] == []


def test_the_last_pattern_counts() -> None:
    assert matches("a/keep.log", ["*.log"])
    assert not matches("a/keep.log", ["*.log", "!keep.log"])
    assert matches("a/keep.log", ["*.log", "!keep.log", "a/"])


@pytest.mark.parametrize(
    ("permissions", "path", "may"),
    [
        (Permissions(), "a", True),
        (Permissions(access="readwrite"), "a", True),
        (Permissions(access="readonly"), "a", False),
        (Permissions(access="readonly", files=Files(write=("report.md",))), "report.md", True),
        (Permissions(access="restricted", files=Files(write=("src/**",))), "src/a", True),
        (Permissions(access="restricted", files=Files(write=("src/**",))), "b", False),
        (Permissions(access="restricted"), "b", False),
        (Permissions(files=Files(write=("src/**",))), "b", False),
        (Permissions(files=Files(write=("src/**",), deny=("src/secret",))), "src/secret", False),
        (Permissions(files=Files(read=("docs/**",))), "docs/a", False),
        (Permissions(files=Files(read=("docs/**",))), "src/a", True),
        (Permissions(access="full"), "ignored/a", True),
        (Permissions(access="full", files=Files(deny=(".env",))), ".env", False),
        (Permissions(), "ignored/a", False),
        (Permissions(), "fixed", False),
        (Permissions(inherit=False), "ignored/a", True),
    ],
)
def test_permissions_yield_writable_paths(tmp_path: Path, permissions: Permissions, path: str, may: bool) -> None:
    (tmp_path / ".agentignore").write_text("# not for agents\n\nignored/\n")
    (tmp_path / ".agentreadonly").write_text("fixed\n")
    assert (find_violation([path], rules_in(permissions, tmp_path)) is None) is may


def test_unrestricted_agents_are_not_checked(tmp_path: Path) -> None:
    assert rules_in(Permissions(), tmp_path).is_free
    assert not rules_in(Permissions(access="readonly"), tmp_path).is_free


def test_profiles_fill_missing_permissions() -> None:
    profile = Permissions(access="readonly", why="of the profile", files=Files(write=("a",), deny=("x",)))
    own = Permissions(profile="careful", files=Files(write=("b",), deny=("y",)))
    expected = Permissions(access="readonly", why="of the profile", files=Files(write=("b",), deny=("x", "y")))
    assert resolve_permissions(own, {"careful": profile}) == expected
    assert resolve_permissions(None, {}) == Permissions(files=Files())


async def test_every_change_is_seen(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    (here / ".gitignore").write_text(".env\n")
    for name in (".env", "same", "touched", "removed", "old", "forged"):
        (here / name).write_text("before")
    before = await take_snapshot(here)
    (here / ".env").write_text("stolen")
    (here / "removed").unlink()
    (here / "old").rename(here / "new")
    (here / "made").mkdir()
    (here / "made" / "file").touch()
    times = (here / "forged").stat()
    (here / "forged").write_text("behind")
    os.utime(here / "forged", ns=(times.st_atime_ns, times.st_mtime_ns))
    (here / "link").symlink_to("/")
    git(here, "add", "-A")
    git(here, "commit", "--quiet", "-m", "hidden in a commit")
    found = changed_files(before, await take_snapshot(here))
    assert found == [".env", "forged", "link", "made/file", "new", "old", "removed"]


async def test_foreign_files_are_not_checked(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    before = await take_snapshot(here)
    git(here, "worktree", "add", "--quiet", "-b", "other", str(here / ".worktrees" / "other"))
    (here / ".accord" / "task").mkdir(parents=True)
    (here / ".accord" / "task" / "began").touch()
    assert changed_files(before, await take_snapshot(here)) == []
    (here / ".accord" / "steps.yaml").touch()
    assert changed_files(before, await take_snapshot(here)) == [".accord/steps.yaml"]


async def test_changes_are_detected_without_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    (tmp_path / "new").touch()
    at_ms = (tmp_path / "old").stat().st_ctime_ns // 1_000_000 + 1
    while (tmp_path / "new").stat().st_ctime_ns < at_ms * 1_000_000:
        (tmp_path / "new").touch()
    assert await changed_since(tmp_path, at_ms) == ["new"]
    assert await changed_since(tmp_path, at_ms - 1) == ["new", "old"]


def test_an_error_names_the_files() -> None:
    found = find_violation([f"f{n:02}" for n in range(12)], rules_in(Permissions(access="readonly"), Path("/nowhere")))
    assert found is not None
    assert found.endswith("f00, f01, f02, f03, f04, f05, f06, f07, f08, f09 and 2 more")


def test_agents_get_their_permissions() -> None:
    said = Permissions(
        access="restricted",
        why="an audit",
        description="Only the report",
        files=Files(write=("r.md",), deny=("*.key",)),
    )
    text = describe_permissions(said)
    for part in ("must not change any", "r.md", "*.key", "an audit", "Only the report"):
        assert part in text
    assert describe_permissions(Permissions()) == ""


def test_changes_by_others_are_not_blamed() -> None:
    mine, theirs = PermissionRules(write=("a/**",)), PermissionRules(write=("b/**",))
    assert find_violation(["a/x", "b/y"], mine, [theirs]) is None
    assert "c/z" in (find_violation(["a/x", "c/z"], mine, [theirs]) or "")
    assert find_violation(["c/z"], mine, [PermissionRules()]) is None
