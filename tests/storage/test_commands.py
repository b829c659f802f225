"""Every command of the store has a test that runs it on every engine.

Tests are read, not run: a call counts if its store is a parameter of the test, and the test is not for one engine only.
"""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from accord.storage import commands

HERE = Path(__file__).parent
MODULES = tuple(import_module(f"{commands.__name__}.{found.name}") for found in iter_modules(commands.__path__))
EVERY_ENGINE = {"store", "ready", "queued", "with_task", "with_tasks", "with_hook", "with_hooks"}
"""Fixtures that are a store of each kind in turn."""


def public() -> set[str]:
    """Every command of these modules, as module.name."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


def run_in(source: str) -> Iterator[str]:
    """Every command that a test of this file runs on every engine, as module.name."""
    tree = ast.parse(source)
    imported = {
        alias.asname or alias.name: f"{node.module.rpartition('.')[2]}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{commands.__name__}.")
        for alias in node.names
    }
    for test in tree.body:
        if isinstance(test, ast.AsyncFunctionDef) and test.name.startswith("test_") and not _is_for_one_engine(test):
            stores = EVERY_ENGINE.intersection(argument.arg for argument in test.args.args)
            for call in ast.walk(test):
                if isinstance(call, ast.Call) and _runs_on(call.func, stores) and call.args:
                    name = ast.unparse(call.args[0])
                    yield imported.get(name, name)


def _runs_on(function: ast.expr, stores: set[str]) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id=store), attr="do" | "read"):
            return store in stores
    return False


def _is_for_one_engine(test: ast.AsyncFunctionDef) -> bool:
    marks = [ast.unparse(mark) for mark in test.decorator_list]
    return any(mark == "postgres_only" or mark.startswith("pytest.mark.parametrize('store'") for mark in marks)


def test_every_command_is_run_on_every_engine() -> None:
    run = {name for file in HERE.glob("test_*.py") for name in run_in(file.read_text(encoding="utf-8"))}
    assert public() - run == set()


def test_commands_are_discovered_for_every_engine() -> None:
    source = """
from accord.storage.commands import jobs
from accord.storage.commands.tasks import append as add

async def test_one(ready, heard):
    assert (await ready.do(jobs.claim, "n")) == [await ready.read(add, 1)]
    await other.do(jobs.park)
    await ready.stop(jobs.park)

@postgres_only
async def test_two(ready):
    await ready.do(jobs.park)

@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_three(store):
    await store.do(jobs.park)

async def prepare(store):
    await store.do(jobs.park)
"""
    assert sorted(run_in(source)) == ["jobs.claim", "tasks.append"]
    assert {"jobs.claim", "webhook_deliveries.claim_webhooks", "task_endings.reap_nodes"} <= public()
    assert "task_lifecycle.append" not in public()
