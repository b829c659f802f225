"""Where commands work: directories of conversations, given ones, worktrees; and files in and out."""

import asyncio
import json
import os
import subprocess
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.agents import git as process_git
from accord.agents.git import GitFailed, find_repository
from accord.agents.process import workspace
from accord.agents.process.workspace import FolderOwner
from accord.model import Part, Task, TaskState
from accord.testing import running
from tests.agents.process.conftest import Making, another, completed, message, sent, status, text, until, words


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "repository"
    made.mkdir()
    git(made, "init", "--quiet", "--initial-branch=main")
    (made / "old.txt").write_text("old")
    git(made, "add", ".")
    git(made, "commit", "--quiet", "-m", "first")
    return made


def reported(task: Task) -> Any:
    """What the task says of its worktree in the end."""
    found = next((one for one in task.artifacts if one.artifact_id == "worktree"), None)
    if found is None:
        return None
    assert found.metadata == {"worktree": found.parts[0].data}
    return found.parts[0].data


async def test_each_conversation_has_a_directory_of_its_own(making: Making, tmp_path: Path) -> None:
    async with running(making(command="pwd")) as a2a:
        first = await sent(a2a, "go")
        again = await sent(a2a, "go", context=first.context_id)
        other = await sent(a2a, "go")
        assert completed(first) == completed(again)
        assert completed(other) != completed(first)
        assert Path(completed(first)).is_relative_to(tmp_path / "work" / "conversations")


async def test_the_same_context_of_another_caller_is_another_place(making: Making) -> None:
    from accord.a2a import Caller

    async with running(making(command="pwd")) as a2a:
        first = completed(await sent(a2a, "go", context="shared"))
        a2a.caller = Caller(owner="somebody else")
        assert completed(await sent(a2a, "go", context="shared")) != first


async def test_it_works_in_a_directory_that_it_is_given_and_leaves_it_clean(making: Making, repository: Path) -> None:
    async with running(making(command="pwd", directory=str(repository))) as a2a:
        assert completed(await sent(a2a, "go", Part(raw=b"x", filename="x"))) == str(repository)
    assert git(repository, "status", "--porcelain") == ""
    assert list((repository / ".accord").iterdir()) == []


async def test_a_directory_that_is_not_there_is_refused_at_the_start(making: Making, tmp_path: Path) -> None:
    from accord.server.settings_loader import BadSettings

    with pytest.raises(BadSettings, match="is no directory"):
        async with running(making(command="pwd", directory=str(tmp_path / "none"))):
            pass


async def test_old_directories_are_removed_at_the_start(making: Making, tmp_path: Path) -> None:
    folders = [tmp_path / "work" / "conversations" / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (time.time() - 31 * 24 * 3600,) * 2)
    async with running(making(command="pwd")):
        assert [folder.exists() for folder in folders] == [False, True]


# --- worktrees --------------------------------------------------------------------------------------------------------


async def test_a_worktree_without_changes_is_removed_with_its_branch(making: Making, repository: Path) -> None:
    async with running(making(command="ls", worktree=True, repository=str(repository))) as a2a:
        done = await sent(a2a, "go")
        assert completed(done) == "old.txt"
        assert reported(done) is None
        assert any(f"branch accord/{done.id}" in json.dumps(msgspec.to_builtins(said)) for said in done.history)
    assert git(repository, "branch", "--format=%(refname:short)") == "main"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


async def test_commits_stay_in_the_branch(making: Making, repository: Path) -> None:
    said = {"command": words("does", "commit", "--commit"), "worktree": True, "repository": str(repository)}
    async with running(making(**said)) as a2a:
        done = await sent(a2a, "go")
        found = reported(done)
    assert (found["path"], found["commits"], found["uncommitted"]) == (None, 1, False)
    assert found["branch"] == f"accord/{done.id}"
    assert git(repository, "show", f"{found['branch']}:new.txt") == "new"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


async def test_uncommitted_changes_are_kept(making: Making, repository: Path) -> None:
    said = {"command": words("does", "commit"), "worktree": True, "repository": str(repository)}
    async with running(making(**said)) as a2a:
        done = await sent(a2a, "go")
        path, found = completed(done), reported(done)
    assert (found["path"], found["uncommitted"]) == (path, True)
    assert os.listdir(path).count("new.txt") == 1


async def test_two_tasks_have_two_worktrees_and_they_can_be_kept(making: Making, repository: Path) -> None:
    said = {"command": "pwd", "worktree": True, "repository": str(repository), "keep_worktree": True}
    async with running(making(**said, base="main")) as a2a:
        first = await sent(a2a, "go")
        second = await sent(a2a, "go", context=first.context_id)
        assert completed(first) != completed(second)
        for task in (first, second):
            assert "old.txt" in os.listdir(completed(task))
            assert reported(task)["path"] == completed(task)


async def test_a_cancelled_task_leaves_its_changes_and_no_clean_worktree(making: Making, repository: Path) -> None:
    said = {"worktree": True, "repository": str(repository)}
    script = "test $(cat) = change && echo x > new.txt; pwd; sleep 1000"
    async with running(making(command=["sh", "-c", script], **said)) as a2a:
        kept = {}
        for told in ("change", "nothing"):
            task = await a2a.send_text(told, at_once=True)

            async def place(task: Task = task) -> str:
                return "".join(part.text or "" for one in (await a2a.get(task)).artifacts for part in one.parts)

            kept[told] = Path(await until(place))
            await a2a.cancel(task)
        await until(lambda: not kept["nothing"].exists())
        assert (kept["change"] / "new.txt").exists()


async def test_a_repository_without_the_base_fails_the_task_readably(making: Making, repository: Path) -> None:
    said = {"command": "pwd", "worktree": True, "repository": str(repository), "base": "no-such-ref"}
    async with running(making(**said)) as a2a:
        failed = await sent(a2a, "go")
        assert (failed.status.state, status(failed)) == (
            TaskState.FAILED,
            "The working directory of this task could not be prepared",
        )


async def test_leftovers_of_suspended_tasks_are_removed_at_start(
    making: Making, repository: Path, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/accord.db"
    said = {"command": words("does", "lines"), "events": "lines", "worktree": True, "repository": str(repository)}
    async with another(making, store, **said) as a2a:
        asked = [await sent(a2a, "book") for _ in range(2)]
        assert {task.status.state for task in asked} == {TaskState.INPUT_REQUIRED}
        await a2a.cancel(asked[0])
        assert len(git(repository, "worktree", "list").splitlines()) == 3
    async with another(making, store, **said) as a2a:
        assert len(git(repository, "worktree", "list").splitlines()) == 2, "the other task still waits"
        assert completed(await sent(a2a, "Rome", task=asked[1])) == "to Rome"
    assert git(repository, "branch", "--format=%(refname:short)") == "main"


async def test_a_task_that_is_handed_over_keeps_its_place(
    making: Making, binary: Callable[[str], str], tmp_path: Path
) -> None:
    store, said = f"sqlite:///{tmp_path}/accord.db", {"preset": "claude", "path": binary("claude")}
    async with another(making, store, **said) as a2a:
        task = await a2a.send(message("sleep", Part(raw=b"x", filename="x.txt")), at_once=True)
        assert isinstance(task, Task)

        async def spoken() -> bool:
            return "begin" in text(await a2a.get(task))

        await until(spoken)
    kept = list((tmp_path / "work").rglob("x.txt"))
    assert len(kept) == 1
    async with another(making, store, **said) as a2a:
        done = await a2a.reaches(task, TaskState.COMPLETED)
        assert text(done).startswith("I begin sleep | You were interrupted")
    assert not kept[0].parent.parent.exists()


HOSTILE = {
    "replaced": "rm .git && git init -q && git config core.fsmonitor 'touch {marker}; false'",
    "settings": "git config core.fsmonitor 'touch {marker}; false'",
    "included": "printf '[core] fsmonitor = touch {marker}' > more && git config include.path $PWD/more",
    "of_the_worktree": (
        "git config extensions.worktreeConfig true && git config --worktree core.fsmonitor 'touch {marker}; false'"
    ),
    "hooks": (
        "cd $(git rev-parse --git-common-dir)/hooks && printf '#!/bin/sh\ntouch {marker}' > post-checkout"
        " && chmod +x post-checkout && cp post-checkout reference-transaction"
    ),
    "filters": (
        "git config filter.x.smudge 'touch {marker}; cat' && git config filter.x.clean 'touch {marker}; cat'"
        " && echo '* filter=x' > $(git rev-parse --git-common-dir)/info/attributes && touch old.txt"
    ),
    "lost_objects": (
        "git config core.repositoryFormatVersion 1 && git config extensions.partialClone x"
        " && git config remote.x.promisor true && git config remote.x.url 'ext::sh -c touch% {marker}'"
        " && git config protocol.ext.allow always && lost=$(git rev-parse HEAD:old.txt)"
        ' && cd $(git rev-parse --git-common-dir)/objects && rm -f "$(printf %.2s $lost)/${{lost#??}}"'
    ),
    "submodule": (
        "git init -q sub && git -C sub -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m x"
        " && git -C sub config core.fsmonitor 'touch {marker}; false' && git add sub 2>/dev/null"
        " && git -c user.name=a -c user.email=a@b.c commit -q -m sub"
    ),
}
"""What a turn leaves in a repository so that git starts a program later."""


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
async def test_git_starts_nothing_that_a_repository_names(
    making: Making, repository: Path, tmp_path: Path, script: str
) -> None:
    marker = tmp_path / "marker"
    said = {"worktree": True, "repository": str(repository), "environ": {"LC_ALL": "C"}}
    async with running(making(command=["sh", "-c", 'pwd; touch new; eval "$(cat)"'], **said)) as a2a:
        first = await sent(a2a, script.format(marker=marker) + f"; rm -f {marker}")
        tree = Path(completed(first))
        assert reported(first)["path"] == str(tree), "it stays"
        await sent(a2a, "rm new")
        assert not marker.exists()
    for command in ("status", "worktree add -b other ../other"):
        await (await asyncio.create_subprocess_exec("git", "-C", tree, *command.split(), stderr=DEVNULL)).wait()
    assert marker.exists(), "git by itself would have"


async def test_worktrees_follow_the_repository_attributes(making: Making, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "ignored").write_text("*.swp\n")
    git(repository, "config", "core.excludesFile", str(tmp_path / "ignored"))
    git(repository, "config", "core.autocrlf", "true")
    command = ["sh", "-c", "touch x.swp; cat old.txt | od -c"]
    async with running(making(command=command, worktree=True, repository=str(repository))) as a2a:
        (repository / "old.txt").write_text("old\n")
        git(repository, "commit", "--quiet", "--all", "-m", "second")
        done = await sent(a2a, "go")
    assert "\\r  \\n" in completed(done)
    assert reported(done) is None


@pytest.mark.parametrize("form", ["sha1", "sha256"])
async def test_half_created_worktrees_are_recreated(tmp_path: Path, form: str) -> None:
    here, path = tmp_path / "repository", tmp_path / "tree"
    here.mkdir()
    git(here, "init", "--quiet", "--initial-branch=main", f"--object-format={form}")
    (here / "old.txt").write_text("old")
    git(here, "add", ".")
    git(here, "commit", "--quiet", "-m", "first")
    git(here, "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", "initializing", str(path), "-b", "x")
    found = await find_repository(here, os.environ)
    tree = await process_git.open_worktree(found, path, "x", "main")
    assert (path / "old.txt").read_text() == "old"
    assert await process_git.open_worktree(found, path, "x", "main") == tree
    assert git(path, "status", "--porcelain") == ""
    assert await process_git.close_worktree(tree, keeps=False) is None
    assert git(here, "branch", "--format=%(refname:short)") == "main"


async def test_unreadable_git_links_keep_the_worktree(repository: Path, tmp_path: Path) -> None:
    found = await find_repository(repository, os.environ)
    tree = await process_git.open_worktree(found, tmp_path / "tree", "x", "main")
    (tree.path / ".git").write_bytes(b"gitdir: a\0b")
    for ends in (
        process_git.close_worktree(tree, keeps=False),
        process_git.open_worktree(found, tree.path, "x", "main"),
    ):
        with pytest.raises(GitFailed, match="not a file of text"):
            await ends


# --- files ------------------------------------------------------------------------------------------------------------


async def test_existing_files_are_not_artifacts(making: Making, tmp_path: Path) -> None:
    (tmp_path / "here" / "dist").mkdir(parents=True)
    old = tmp_path / "here" / "dist" / "old.txt"
    old.write_text("old")
    os.utime(old, (1, 1))
    made = tmp_path / "here" / "dist" / "sub"
    command = ["sh", "-c", f"sleep 0.1; mkdir {made}; echo new > {made}/new.txt; echo changed > dist/also.bin"]
    async with running(making(command=command, directory=str(tmp_path / "here"), outbox="dist")) as a2a:
        done = await sent(a2a, "go")
        found = {part.filename: part.raw for one in done.artifacts for part in one.parts if part.raw is not None}
    assert found.keys() >= {"sub/new.txt", "also.bin"}
    assert found["sub/new.txt"] == b"new\n"


async def test_files_of_failed_commands_are_delivered(making: Making) -> None:
    command = ["sh", "-c", 'echo half > "$TASK_OUTBOX/half.txt"; exit 1']
    async with running(making(command=command)) as a2a:
        failed = await sent(a2a, "go")
        assert failed.status.state is TaskState.FAILED
        assert [part.raw for one in failed.artifacts for part in one.parts] == [b"half\n"]


async def test_too_large_and_too_many_files_stay_behind(making: Making) -> None:
    command = ["sh", "-c", 'cd "$TASK_OUTBOX"; printf 12345 > a; printf 1 > b; printf 2 > c']
    async with running(making(command=command, max_files=1, max_file_bytes=4)) as a2a:
        done = await sent(a2a, "go")
        assert [part.filename for one in done.artifacts for part in one.parts] == ["b"]
        told = [json.dumps(msgspec.to_builtins(said)) for said in done.history]
        assert any("stay behind: a, c" in said for said in told), status(done)


def test_symlinked_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".accord").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="leads out"):
        workspace.open_folders(tmp_path / "here", FolderOwner("", "task"), None)
    with pytest.raises(OSError, match="leads out"):
        workspace.open_folders(tmp_path, FolderOwner("", "task"), "../outside")


def test_files_and_folders_are_for_the_owner_alone(tmp_path: Path) -> None:
    boxes = workspace.open_folders(tmp_path, FolderOwner("", "task"), None)
    written = workspace.write_inbox(boxes, [Part(raw=b"x", filename="a"), Part(raw=b"y", filename="a")], 2, 9)
    assert [path.name for path in written] == ["a", "2-a"]
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    folders = (boxes.folder.parent, boxes.folder, boxes.inbox, boxes.outbox)
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


async def test_files_are_not_written_through_links_of_an_earlier_turn(making: Making, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    script = (
        f'if ! grep -q "The answer is"; then ln -sf {target} "$TASK_INBOX/a"; echo \'{{"type": "ask", "text": "?"}}\';'
        """ else printf '{"type": "text", "text": "%s"}' $(cat "$TASK_INBOX/a"); fi"""
    )
    async with running(making(command=["sh", "-c", script], events="lines")) as a2a:
        asked = await sent(a2a, "go", Part(raw=b"theirs", filename="a"))
        assert asked.status.state is TaskState.INPUT_REQUIRED
        done = await sent(a2a, "that", task=asked)
    assert (done.status.state, text(done)) == (TaskState.COMPLETED, "theirs")
    assert target.read_text() == "mine"


def test_a_box_that_became_a_link_is_neither_written_nor_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    boxes = workspace.open_folders(tmp_path, FolderOwner("", "task"), None)
    (elsewhere / "secret").write_text("x")
    for box in (boxes.inbox, boxes.outbox):
        box.rmdir()
        box.symlink_to(elsewhere)
    with pytest.raises(OSError, match="leads out"):
        workspace.write_inbox(boxes, [Part(raw=b"x", filename="a")], 1, 9)
    assert workspace.read_outbox(boxes, 1, 9) == ([], [])
    assert os.listdir(elsewhere) == ["secret"]


def test_a_mark_that_became_a_pipe_holds_up_no_start(tmp_path: Path) -> None:
    boxes = workspace.open_folders(tmp_path, FolderOwner("", "task"), None)
    (boxes.folder / workspace.BEGAN).unlink()
    os.mkfifo(boxes.folder / workspace.BEGAN)
    assert list(workspace.find_folders(tmp_path)) == []


async def test_names_of_files_need_not_be_utf8(making: Making) -> None:
    command = ["sh", "-c", """cd "$TASK_OUTBOX"; touch "$(printf 'a\\377')" "$(printf 'b\\377')" """]
    async with running(making(command=command, max_files=1)) as a2a:
        done = await sent(a2a, "go")
    assert done.status.state is TaskState.COMPLETED
    assert [part.filename for one in done.artifacts for part in one.parts] == ["a\\xff"]


async def test_a_message_names_a_few_of_many_files(making: Making) -> None:
    command = ["sh", "-c", 'cd "$TASK_OUTBOX"; for i in 1 2 3 4 5; do for j in 1 2 3 4 5; do touch $i$j; done; done']
    async with running(making(command=command, max_files=1)) as a2a:
        done = await sent(a2a, "go")
    assert any(" and 4 more" in json.dumps(msgspec.to_builtins(said)) for said in done.history), status(done)


def test_folders_of_any_depth_are_left_and_removed(tmp_path: Path) -> None:
    boxes = workspace.open_folders(tmp_path, FolderOwner("", "task"), None)
    (boxes.outbox / "a").touch()
    folder = os.open(boxes.outbox, os.O_RDONLY)
    for _ in range(1500):  # a path has at most 4096 bytes, and Python at most 1000 calls in calls
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.symlink("/", "link", dir_fd=folder)
    os.close(folder)
    assert [part.filename for part in workspace.read_outbox(boxes, 9, 9)[0]] == ["a"]
    workspace.remove_folders(boxes)
    assert not boxes.folder.exists()


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["3-a", "a", "a"], ["3-a", "a", "3-3-a"]),
        (["\u6f22" * 100], ["\u6f22" * 40]),
        (["\u6f22" * 100 + ".txt"], ["\u6f22" * 33 + ".txt"]),
    ],
    ids=["alike", "long", "suffix"],
)
def test_each_file_has_a_name_that_fits(tmp_path: Path, names: list[str], written: list[str]) -> None:
    boxes = workspace.open_folders(tmp_path, FolderOwner("", "task"), None)
    (boxes.inbox / written[0] / "folder").mkdir(parents=True)
    made = workspace.write_inbox(boxes, [Part(raw=name.encode(), filename=name) for name in names], 9, 999)
    assert [path.name for path in made] == written
    assert [path.read_bytes().decode() for path in made] == names


@given(st.text())
def test_any_name_becomes_a_safe_name(name: str) -> None:
    made = workspace.safe_name(name)
    assert made
    assert len(made.encode()) <= workspace.MAX_NAME
    assert not made.startswith((".", "-"))
    assert Path(made).name == made
    assert workspace.safe_name(made) == made
