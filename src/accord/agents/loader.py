"""Load agents, and other Python objects, by name.

A name is `module:name`, `path/to/file.py:name` or a file. An object that is an agent stays as it is; any other becomes
an agent of the type that recognizes it (`agents.agent_types`). Settings are read in `server`.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import RLock
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn, TypeGuard

import msgspec

from accord.api import Agent, Context, Profile, agent_types
from accord.api.agent_types import AGENT_TYPES, AgentArguments, AgentType

HIDDEN_FRAMES = str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib"
"""Path prefixes of stack frames that are hidden in errors: Accord's own and the import system's."""


_importing: dict[Path, RLock] = {}
"""Locks of files that are being imported; without one, a second thread would receive an incomplete module."""


class ObjectNotFound(ValueError):
    """A name that does not resolve to an object, with the reason."""


class BrokenModule(ObjectNotFound):
    """A module that cannot be imported because of its content; `lines` is its traceback."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(f"{where} cannot be imported: {_reason(error)}")
        self.lines = _traceback_lines(error)


def import_object(spec: str) -> Any:
    """Return the object named as `module:name` or `file.py:name`."""
    where, separator, name = spec.rpartition(":")
    if not separator or not where or not name:
        raise ObjectNotFound(f"{spec!r} is not a valid name: write module:name or path/to/file.py:name")
    value: Any = _import_source(where)
    for part in name.split("."):
        if not hasattr(value, part):
            raise ObjectNotFound(f"{where} has no {name!r}")
        value = getattr(value, part)
    return value


def public_members(path: str) -> dict[str, Any]:
    """Return the public members of a Python file by name."""
    return {name: value for name, value in vars(_import_source(path)).items() if not name.startswith("_")}


def traceback_of(error: BaseException | None) -> str | None:
    """Return the traceback of a broken module that caused an error, or None."""
    while error is not None and not isinstance(error, BrokenModule):
        error = error.__cause__
    return None if error is None else error.lines


def import_function(spec: str, option: str) -> Callable[..., Any]:
    """Return the function that an agent's option refers to."""
    try:
        value: Any = import_object(spec)
    except ObjectNotFound as error:
        raise ObjectNotFound(f"{option}: {error}") from error
    if not callable(value):
        raise ObjectNotFound(f"{option}: {spec} must be a function, not {type(value).__name__}")
    function: Callable[..., Any] = value
    return function


async def call_function(function: Callable[..., Any], ctx: Context) -> Any:
    """Return the result of an option's function, which may be async, and may take the context."""
    result = function(ctx) if inspect.signature(function).parameters else function()
    return await result if inspect.isawaitable(result) else result


def _import_source(where: str) -> ModuleType:
    try:
        return _import_file(Path(where)) if where.endswith(".py") else _import_module(where)
    except ObjectNotFound:
        raise
    except (Exception, SystemExit) as error:  # a module may raise any exception
        raise BrokenModule(where, error) from error


def _import_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the working directory of the command
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that this one imports
        raise ObjectNotFound(f"There is no module called {name!r}") from None


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ObjectNotFound(f"There is no file {path}")
    with _importing.setdefault(path.resolve(), RLock()):
        return _execute_file(path)


def _execute_file(path: Path) -> ModuleType:
    loaded = sys.modules.get(path.stem)
    source = getattr(loaded, "__file__", None)
    if loaded is not None and source is not None and Path(source).resolve() == path.resolve():
        return loaded  # several objects of one file share one module
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ObjectNotFound(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # an incomplete module must not remain
        raise
    return module


# --- errors of modules ------------------------------------------------------------------------------------------------


def _reason(error: BaseException) -> str:
    name, text = type(error).__name__, " ".join(str(error).split())
    match error:
        case ImportError():
            return text or name  # which names the missing module
        case SyntaxError():
            return f"{name}: {error.msg}"
        case SystemExit():
            return f"it ends the process: sys.exit({error.code!r})"
    return f"{name}: {text}" if text else name


def _traceback_lines(error: BaseException) -> str:
    """Return the traceback of an error without frames of Accord and the import system."""
    trace = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in trace.stack if not frame.filename.startswith(HIDDEN_FRAMES)]
    lines = traceback.StackSummary.from_list(frames).format()
    if isinstance(error, SyntaxError):
        lines += list(trace.format_exception_only())[:-1]  # without the last line, which is the reason
    return "".join(lines).rstrip("\n")


NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})

FILE_SUFFIXES = frozenset({".yaml", ".yml"})
"""Suffixes of files that are objects by themselves."""


class NotAnAgent(ValueError):
    """An object of that name is missing, is not an agent, or cannot become one."""


def load(spec: str, env: Mapping[str, str] = NO_ENVIRONMENT) -> Agent:
    """Return the agent named as `module:name`, `file.py:name` or a file."""
    return as_agent(load_object(spec), spec, env)


def load_object(spec: str) -> Any:
    """Return the object of a name; if a supported framework is missing, the error names its extra.

    A file that is not Python becomes a `Path`, for the agent type that recognizes it.
    """
    if ":" not in spec and Path(spec).suffix in FILE_SUFFIXES:
        if not Path(spec).is_file():
            raise NotAnAgent(f"There is no file {spec}")
        return Path(spec)
    try:
        return import_object(spec) if ":" in spec or not spec.endswith(".py") else _refuse_bare_path(spec)
    except ObjectNotFound as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        framework = agent_types.framework(missing or "")
        fix = "" if framework is None else f": pip install 'accord[{framework.extra}]'"
        raise NotAnAgent(f"{error}{fix}") from error


def _refuse_bare_path(file: str) -> NoReturn:
    """Reject a Python file without a name, and list the agents that it contains."""
    agents = [f"{file}:{name}" for name, value in public_members(file).items() if is_agent(value)]
    choice = f"which of {', '.join(agents)}" if len(agents) > 1 else agents[0] if agents else f"{file}:name"
    raise ObjectNotFound(f"{file} names no object: write {choice}")


def as_agent(thing: Any, name: str | None = None, env: Mapping[str, str] = NO_ENVIRONMENT, **options: Any) -> Agent:
    """Return an agent unchanged, and any object that an agent type recognizes as an agent of that type.

    `options` are those of the type, as in `[agents.NAME]`: `as_agent(graph, extended_skills=["book"])`. `name` is the
    object's name in errors.
    """
    name = name or str(getattr(thing, "__name__", type(thing).__name__))
    if is_agent(thing):
        if options:
            raise NotAnAgent(f"{name}: it is an agent already: state {', '.join(options)} where it is made")
        return thing
    agent_type = find_type(thing, name)
    try:
        return make_agent(
            agent_type, AgentArguments(options=msgspec.convert(options, agent_type.options), target=thing, env=env)
        )
    except (NotAnAgent, msgspec.ValidationError) as error:
        raise NotAnAgent(f"{name}: {error}") from error


def is_agent(thing: Any) -> TypeGuard[Agent]:
    """Whether an object is already an agent."""
    return isinstance(getattr(thing, "profile", None), Profile)


def find_type(thing: Any, name: str) -> AgentType:
    """Return the agent type for an object."""
    agent_type = (
        AGENT_TYPES.load("function") if inspect.isroutine(thing) else agent_types.agent_type_of(thing)
    )  # which checks every type
    if agent_type is None:
        description = f"the class {thing.__name__}" if inspect.isclass(thing) else type(thing).__name__
        fix = agent_types.remedy(thing) or "decorate a function with @agent"
        raise NotAnAgent(f"{name} is not an agent but {description}: {fix}")
    return agent_type


def make_agent(agent_type: AgentType, given: AgentArguments) -> Agent:
    """Make an agent of a type; raises NotAnAgent if its framework is missing or its input is not valid."""
    try:
        return agent_type.make(given)
    except (ImportError, ValueError) as error:
        raise NotAnAgent(str(error)) from error
