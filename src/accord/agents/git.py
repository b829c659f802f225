"""Git repositories and their worktrees, without the repository's configuration.

Process agents and workflow steps make their worktrees here. A repository's configuration can name programs that git
starts: hooks, filters, file system monitors, and programs to fetch with. An agent that works in a repository can write
that configuration. Commands therefore run in a separate git directory, which links to objects and references of the
repository. Its configuration contains only values that start no program (`CARRIED`). A worktree is removed if nothing
in it would be lost.
"""

import asyncio
import os
import os.path
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from weakref import WeakValueDictionary

from msgspec import Struct

from accord.agents import subprocesses

GIT_SECONDS = 120.0
"""Time limit of one git command, in seconds; a checkout of a large repository is slow."""

GRACE_SECONDS = 1.0

HALF_MADE = "initializing"
"""Reason of git's lock on a worktree whose checkout has not finished."""

LINKED = ("info", "logs", "objects", "packed-refs", "refs", "reftable", "shallow", "worktrees")
"""Entries of a repository's git directory that commands use, without its configuration and its hooks."""

CARRIED = frozenset(
    {
        "core.autocrlf",
        "core.eol",
        "core.excludesfile",
        "core.filemode",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.repositoryformatversion",
        "core.symlinks",
        "extensions.objectformat",
        "extensions.refstorage",
    }
)
"""Settings of the repository, the user and the system that still apply: how files are stored and compared."""

NEUTRAL = {"core.fsmonitor": "", "core.hooksPath": os.devnull, "protocol.allow": "never", "safe.directory": "*"}
"""Settings for the few commands that read a repository's configuration. Its owner does not matter to them."""

MAX_LINE = 4096
"""Maximum size of a one-line file of git, such as `HEAD`, in bytes."""


class GitFailed(Exception):
    """A git command failed, with git's own text, or a worktree was changed since git created it."""


class ListedWorktree(Struct, frozen=True):
    """A worktree in git's list; a detached one has no `branch`, and `locked` is the reason of its lock."""

    path: Path
    branch: str | None
    locked: str | None


class Repository(Struct, frozen=True, kw_only=True):
    """A repository, its configuration at the server's first access, and the environment of commands."""

    git_dir: Path
    common: Path
    config: str
    env: Mapping[str, str]

    async def run(self, *arguments: str) -> str:
        """Run a command on references and worktrees."""
        return await self._isolated(self.git_dir, {}, *arguments)

    async def succeeds(self, *arguments: str) -> bool:
        """Whether a command on references succeeds."""
        try:
            await self.run(*arguments)
        except GitFailed:
            return False
        return True

    async def has(self, name: str) -> bool:
        """Whether a name is a revision of the repository."""
        return await self.succeeds("rev-parse", "--verify", "--quiet", "--end-of-options", name)

    def lock(self) -> asyncio.Lock:
        """Return the lock for changes of worktrees, because git locks its repository and fails instead of waiting."""
        return _locks.setdefault(self.common, asyncio.Lock())

    async def run_in(self, tree: Path, *arguments: str) -> str:
        """Run a command on the files and the index of a worktree."""
        admin = await asyncio.to_thread(self.admin_of, tree)
        env = {"GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": str(admin / "index")}
        return await self._isolated(admin, env, *arguments)

    async def add_worktree(self, path: Path, branch: str, base: str | None) -> None:
        """Add a worktree on a branch, which is created if there is a `base`.

        It is locked as unfinished until its files are checked out, so that a later call can detect it.
        """
        await asyncio.to_thread((self.common / "worktrees").mkdir, exist_ok=True)
        new = (str(path), branch) if base is None else ("--no-track", "-b", branch, str(path), base)
        await self.run("worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", HALF_MADE, *new)
        admin = await asyncio.to_thread(self._adopt, path)
        await self.run_in(path, "read-tree", "--reset", "-u", "HEAD")
        await asyncio.to_thread((admin / "locked").unlink)

    async def worktrees(self) -> list[ListedWorktree]:
        """Return git's list of worktrees."""
        return list(_parse_worktrees(await self._neutral("worktree", "list", "--porcelain")))

    async def find_worktree(self, path: Path) -> ListedWorktree | None:
        """Return the worktree at a path.

        One whose directory is gone is pruned, and so is an unfinished one of a killed server, with its directory.
        """
        resolved = await asyncio.to_thread(path.resolve)
        worktree = next((tree for tree in await self.worktrees() if tree.path == resolved), None)
        if worktree is None:
            return None
        if worktree.locked != HALF_MADE and await asyncio.to_thread(os.path.lexists, path / ".git"):
            return worktree
        await self._prune(worktree)
        return None

    async def _prune(self, tree: ListedWorktree) -> None:
        def unlock() -> None:
            (self._registered(tree.path) / "locked").unlink(missing_ok=True)
            if tree.locked == HALF_MADE and tree.path.exists():
                shutil.rmtree(tree.path)

        await asyncio.to_thread(unlock)
        await self.run("worktree", "prune", "--expire", "now")

    def admin_of(self, tree: Path) -> Path:
        """Return git's own directory for a worktree; raises GitFailed if its `.git` does not point there."""
        link = tree.resolve() / ".git"
        admin = self._registered(tree)
        if (link.parent / _read_line(link).removeprefix("gitdir: ")).resolve() != admin.resolve():
            raise GitFailed(f"{link} was replaced")
        return admin

    def _registered(self, tree: Path) -> Path:
        link = tree.resolve() / ".git"
        for file in (self.common / "worktrees").glob("*/gitdir"):
            if (file.parent / _read_line(file)).parent.resolve() / ".git" == link:
                return file.parent
        raise GitFailed(f"{tree} is not a worktree of {self.common}")

    def head_of(self, tree: Path) -> str:
        """Return the HEAD of a worktree: `ref: refs/heads/...`, or a commit."""
        return _read_line(self.admin_of(tree) / "HEAD")

    def _adopt(self, path: Path) -> Path:
        """Point a new worktree to the repository instead of the git directory that added it."""
        link = path / ".git"
        admin = self.common / "worktrees" / Path(_read_line(link).removeprefix("gitdir: ")).name
        link.write_text(f"gitdir: {admin}\n")
        return admin

    async def _isolated(self, head: Path, variables: Mapping[str, str], *arguments: str) -> str:
        with self._directory(head) as directory:
            env = _environment(self.env) | {"GIT_DIR": str(directory), "GIT_CONFIG_GLOBAL": os.devnull, **variables}
            return await _run(arguments, directory, env)

    async def _neutral(self, *arguments: str) -> str:
        env = _environment(self.env) | {"GIT_DIR": str(self.common), "GIT_CONFIG_GLOBAL": os.devnull}
        return await _run(arguments, self.common, env)

    @contextmanager
    def _directory(self, head: Path) -> Iterator[Path]:
        with TemporaryDirectory(prefix="accord-git-") as folder:
            directory = Path(folder)
            (directory / "HEAD").write_text(_read_line(head / "HEAD") + "\n", errors="surrogateescape")
            (directory / "config").write_text(self.config)
            for name in LINKED:
                if (self.common / name).exists():
                    (directory / name).symlink_to(self.common / name)
            yield directory


_locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
"""Locks by repository."""


async def find_repository(directory: Path, env: Mapping[str, str]) -> Repository:
    """Return the repository that contains a directory."""
    neutral = _environment(env)
    places = ("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
    git_dir, common = map(Path, (await _run(places, directory, neutral)).splitlines())
    settings = await _run(("config", "--null", "--list"), common, neutral | {"GIT_DIR": str(common)})
    values = dict(entry.partition("\n")[::2] for entry in settings.split("\0"))
    config = _format_config({name: value for name, value in values.items() if name in CARRIED} | {"core.bare": "false"})
    return Repository(git_dir=git_dir.resolve(), common=common.resolve(), config=config, env=env)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command; none points git at another repository or names a program."""
    passed = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "GIT_CEILING_DIRECTORIES")
    settings = {
        name: value
        for number, pair in enumerate(NEUTRAL.items())
        for name, value in zip((f"GIT_CONFIG_KEY_{number}", f"GIT_CONFIG_VALUE_{number}"), pair, strict=True)
    }
    return {
        **{name: env[name] for name in passed if name in env},
        **settings,
        "GIT_CONFIG_COUNT": str(len(NEUTRAL)),
        "GIT_ALLOW_PROTOCOL": "",  # takes precedence over a repository's settings for one protocol
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }


async def _run(arguments: tuple[str, ...], directory: Path, env: Mapping[str, str]) -> str:
    command = subprocesses.SubprocessCommand(
        argv=("git", *arguments), directory=directory, env=env, grace=GRACE_SECONDS
    )
    output = b""
    try:
        async with asyncio.timeout(GIT_SECONDS):
            process = await subprocesses.start(command)
            try:
                process.feed(b"")
                while data := await process.read():
                    output += data
                code = await process.ended()
            finally:
                await process.stop()
    except subprocesses.SubprocessNotStarted as error:
        raise GitFailed(f"git could not be started: {error}") from error
    except TimeoutError as error:
        raise GitFailed(f"git {arguments[0]} did not end within {GIT_SECONDS:g} seconds") from error
    if code != 0:
        raise GitFailed(process.tail.strip() or f"git {arguments[0]} failed")
    return output.decode(errors="replace").strip()


def _format_config(settings: Mapping[str, str]) -> str:
    """Return settings in the format of git's configuration files."""
    lines = []
    for name, value in settings.items():
        section, _, key = name.partition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'[{section}]\n\t{key} = "{escaped}"\n')
    return "".join(lines)


def _read_line(file: Path) -> str:
    """Return the line in one of git's own files; raises GitFailed for anything but a regular text file."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
            if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                line = opened.read(MAX_LINE).decode(errors="surrogateescape").strip()
                if "\0" not in line:
                    return line
    except OSError as error:
        raise GitFailed(f"{file}: {error.strerror}") from error
    raise GitFailed(f"{file} is not a file of text")


def _parse_worktrees(text: str) -> Iterator[ListedWorktree]:
    """Yield the worktrees in git's list: blocks of lines, separated by an empty line."""
    for block in text.split("\n\n"):
        fields = dict(line.partition(" ")[::2] for line in block.splitlines() if line)
        if "worktree" in fields:
            branch = fields.get("branch", "").removeprefix("refs/heads/") or None
            yield ListedWorktree(Path(fields["worktree"]).resolve(), branch, fields.get("locked"))


GITLINK = "160000 "
"""Mode of a submodule in git's index."""


class Worktree(Struct, frozen=True, kw_only=True):
    """A task's worktree, with its branch and the commit that it started from."""

    repository: Repository
    path: Path
    branch: str
    base: str


async def open_worktree(repository: Repository, path: Path, branch: str, base: str) -> Worktree:
    """Create the worktree of a task, or find the existing one; raises GitFailed if it was replaced."""
    await repository.find_worktree(path)
    if await asyncio.to_thread(os.path.lexists, path / ".git"):
        await asyncio.to_thread(repository.admin_of, path)
    else:
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        is_known = await repository.has(f"refs/heads/{branch}")
        await repository.add_worktree(path, branch, None if is_known else base)
    start = await repository.run("merge-base", branch, base)
    return Worktree(repository=repository, path=path, branch=branch, base=start)


async def close_worktree(tree: Worktree, *, keeps: bool) -> dict[str, object] | None:
    """Remove a worktree if nothing is lost, and return facts of the remaining branch or worktree, or None."""
    repository, path = tree.repository, tree.path
    changed = await repository.run_in(
        path, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all"
    )
    commits = int(await repository.run_in(path, "rev-list", "--count", f"{tree.base}..HEAD"))
    head = await asyncio.to_thread(repository.head_of, path)
    removes = not keeps and not changed and head == f"ref: refs/heads/{tree.branch}"
    if removes:
        # Only git in a submodule could report its changes, with that repository's own configuration.
        files = await repository.run_in(path, "ls-files", "--stage")
        if any(line.startswith(GITLINK) for line in files.splitlines()):
            raise GitFailed(f"{path} has submodules")
        await repository.run("worktree", "remove", "--force", str(path))  # changes were checked above
        if not commits:
            await repository.run("branch", "--quiet", "-D", tree.branch)
            return None
    return {
        "branch": tree.branch,
        "path": None if removes else str(path),
        "base": tree.base,
        "commits": commits,
        "uncommitted": bool(changed),
    }
