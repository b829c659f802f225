"""Finding the agent that a command line names: `module:name` or `path/to/file.py:name`.

What is an agent already is taken as it is; any other callable is made one.
"""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from accord.agents.function import agent
from accord.core.agent import Agent, Profile


class NotAnAgent(ValueError):
    """What was named is no agent."""


def load(spec: str) -> Agent:
    """Return the agent that `module:name` or `file.py:name` names."""
    return as_agent(named(spec), spec)


def named(spec: str) -> Any:
    """Return whatever `module:name` or `file.py:name` names."""
    where, separator, name = spec.rpartition(":")
    if not separator or not where or not name:
        raise NotAnAgent(f"{spec!r} names no agent: write module:name or path/to/file.py:name")
    module = _file(Path(where)) if where.endswith(".py") else _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotAnAgent(f"{where} has no {name!r}")
        found = getattr(found, part)
    return found


def as_agent(found: Any, name: str) -> Agent:
    """Return an agent as it is, and any other callable as one."""
    if isinstance(getattr(found, "profile", None), Profile):
        agent_itself: Agent = found
        return agent_itself
    if callable(found) and not inspect.isclass(found):
        return agent(found)
    raise NotAnAgent(f"{name} is no agent but {type(found).__name__}: decorate a function with @agent")


def _module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the directory where the command was typed
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module itself needs
        raise NotAnAgent(f"There is no module called {name!r}") from None


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotAnAgent(f"There is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NotAnAgent(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module
