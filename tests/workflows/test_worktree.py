"""Worktrees as steps, in real repositories: made once, found again, and never in the place of something else."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from accord.workflows.executors import Result
from accord.workflows.steps.worktree import worktree
from accord.workflows.values import StepValue, Values
from tests.workflows.scenes import BOUND_SECONDS, environment, git, repository, scene


async def made(
    directory: Path, *, values: Values | None = None, env: dict[str, str] | None = None, **step: Any
) -> Result:
    async with asyncio.timeout(BOUND_SECONDS):
        return await worktree(scene(directory, values=values, env=env, type="worktree", **step))


@pytest.mark.proves("1-06")
async def test_a_worktree_is_made_and_found_again(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    first = await made(here, branch="feature/a")
    place = here / ".worktrees" / "work"
    assert first == Result(ok=True, output=str(place), exit_code=0)
    assert git(place, "branch", "--show-current") == "feature/a"
    assert git(here, "status", "--porcelain") == ""
    (place / "half-done").write_text("of an agent that was killed")
    assert await made(here, branch="feature/a") == first
    assert (place / "half-done").exists()


async def test_a_run_may_work_below_the_repository(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo") / "deep"
    here.mkdir()
    assert (await made(here, branch="a", path="../../trees/a")).output == str(tmp_path / "trees" / "a")


async def test_branches_start_at_the_step_s_base(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    first = git(here, "rev-parse", "HEAD")
    (here / "second").touch()
    git(here, "add", ".")
    git(here, "commit", "--quiet", "-m", "second")
    values = Values(steps={"name": StepValue(output="from-{{x}}\n")})
    result = await made(here, values=values, branch="a", base_branch="main~1")
    assert git(Path(result.output), "rev-parse", "HEAD") == first


async def test_a_branch_that_is_there_is_taken(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    git(here, "branch", "known")
    result = await made(here, branch="known", create_branch=False, base_branch="nowhere")
    assert git(Path(result.output), "branch", "--show-current") == "known"


async def test_branch_names_may_come_from_step_output(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    values = Values(steps={"plan": StepValue(output="topic-7\n")})
    result = await made(here, values=values, branch="{{steps.plan.output}}")
    assert git(Path(result.output), "branch", "--show-current") == "topic-7"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"branch": "--help"}, "'--help' is not a valid branch name"),
        ({"branch": "a b; touch pwned"}, "'a b; touch pwned' is not a valid branch name"),
        ({"branch": "@{-1}"}, "'@{{-1}}' is not a valid branch name"),
        ({"branch": ""}, "'' is not a valid branch name"),
        ({"branch": "new", "create_branch": False}, "There is no branch new: make it, or say createBranch: true"),
        ({"branch": "new", "base_branch": "nowhere"}, "There is no commit 'nowhere' to begin the branch new from"),
        ({"branch": "new", "base_branch": "--help"}, "There is no commit '--help' to begin the branch new from"),
        ({"branch": "main"}, "The branch main is checked out already, in {here}: give the step another branch"),
    ],
)
async def test_impossible_worktrees_report_the_reason(tmp_path: Path, said: dict[str, Any], why: str) -> None:
    here = repository(tmp_path / "repo")
    result = await made(here, **said)
    assert (result.ok, result.error) == (False, why.format(here=here))


async def test_another_worktree_in_its_place_is_left_alone(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    first = await made(here, branch="a", path="tree")
    result = await made(here, branch="b", path="tree")
    expected = f"{first.output} is a worktree already, but on a instead of b: give the step a path"
    assert (result.ok, result.error) == (False, expected)


async def test_existing_directories_are_left_alone(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    (here / "tree").mkdir()
    (here / "tree" / "mine").touch()
    result = await made(here, branch="a", path="tree")
    assert not result.ok
    assert "already exists" in (result.error or "")
    assert (here / "tree" / "mine").exists()


async def test_a_link_to_nowhere_is_not_written_through(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    (here / ".worktrees").mkdir()
    (here / ".worktrees" / ".gitignore").symlink_to(tmp_path / "elsewhere")
    assert (await made(here, branch="a")).ok
    assert not (tmp_path / "elsewhere").exists()


async def test_missing_repositories_are_reported(tmp_path: Path) -> None:
    result = await made(tmp_path, branch="a", env=environment(tmp_path, GIT_CEILING_DIRECTORIES=str(tmp_path)))
    assert not result.ok
    assert "not a git repository" in (result.error or "")


async def test_a_directory_that_was_removed_is_made_again(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    place = Path((await made(here, branch="a")).output)
    git(place, "commit", "--quiet", "--allow-empty", "-m", "work")
    kept = git(place, "rev-parse", "HEAD")
    shutil.rmtree(place)
    assert (await made(here, branch="a")).ok
    assert git(place, "rev-parse", "HEAD") == kept


async def test_half_created_worktrees_are_replaced(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    place = Path((await made(here, branch="a")).output)
    (here / ".git" / "worktrees" / "work" / "locked").write_text("initializing\n")
    (place / "readme").unlink()
    assert (await made(here, branch="a")).ok
    assert (place / "readme").read_text() == "first\n"


async def test_locked_worktrees_are_reused(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    place = Path((await made(here, branch="a")).output)
    git(here, "worktree", "lock", "--reason", "on a stick", str(place))
    assert (await made(here, branch="a")).output == str(place)


async def test_many_at_the_same_time_do_not_lock_each_other_out(tmp_path: Path) -> None:
    here = repository(tmp_path / "repo")
    results = await asyncio.gather(*(made(here, branch=f"b{n}", path=f"trees/{n}") for n in range(6)))
    assert all(result.ok for result in results), results


async def test_variables_do_not_point_git_at_another_repository(tmp_path: Path) -> None:
    here, other = repository(tmp_path / "repo"), repository(tmp_path / "other")
    env = environment(tmp_path, GIT_DIR=str(other / ".git"), GIT_WORK_TREE=str(other))
    assert (await made(here, branch="a", env=env)).ok
    assert git(other, "branch", "--list", "a") == ""


async def test_git_starts_nothing_that_the_repository_names(tmp_path: Path) -> None:
    here, marker = repository(tmp_path / "repo"), tmp_path / "marker"
    hook = here / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    (here / ".git" / "info" / "attributes").write_text("* filter=x\n")
    for name in ("core.fsmonitor", "filter.x.smudge", "filter.x.process"):
        git(here, "config", name, f"touch {marker}; false")
    result = await made(here, branch="a")
    assert (Path(result.output) / "readme").read_text() == "first\n"
    assert not marker.exists()
