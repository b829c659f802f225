"""Things in Python code by their names: `module:name` or `path/to/file.py:name`.

It only finds them; whether they are agents, or of use to one, is for who asked. All of `accord.agents` may stand above.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any

OURS = str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen importlib"
"""How the names of files begin that whoever wrote a module knows nothing of: what serves it, and what imports it."""


_importing: dict[Path, RLock] = {}
"""Files that are imported by one thread at a time: another would be given half of a module."""


class NotThere(ValueError):
    """A name that names nothing, and why."""


class Broken(NotThere):
    """A module that cannot be imported because of what is in it; `lines` shows where, as Python does."""

    def __init__(self, where: str, error: BaseException) -> None:
        """Say in one line what went wrong in `where`."""
        super().__init__(f"{where} cannot be imported: {_reason(error)}")
        self.lines = _lines(error)


def named(spec: str) -> Any:
    """Return whatever `module:name` or `file.py:name` names."""
    where, separator, name = spec.rpartition(":")
    if not separator or not where or not name:
        raise NotThere(f"{spec!r} names nothing: write module:name or path/to/file.py:name")
    found: Any = _found(where)
    for part in name.split("."):
        if not hasattr(found, part):
            raise NotThere(f"{where} has no {name!r}")
        found = getattr(found, part)
    return found


def members(path: str) -> dict[str, Any]:
    """Return what is in a Python file, by the names that others may use."""
    return {name: value for name, value in vars(_found(path)).items() if not name.startswith("_")}


def lines_of(error: BaseException | None) -> str | None:
    """Return where a module is broken, if that is what led to an error."""
    while error is not None and not isinstance(error, Broken):
        error = error.__cause__
    return None if error is None else error.lines


def function_named(spec: str, option: str) -> Callable[..., Any]:
    """Return the function that an option of an agent names."""
    try:
        found: Any = named(spec)
    except NotThere as error:
        raise NotThere(f"{option}: {error}") from error
    if not callable(found):
        raise NotThere(f"{option}: {spec} is no function but {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


def _found(where: str) -> ModuleType:
    try:
        return _file(Path(where)) if where.endswith(".py") else _module(where)
    except NotThere:
        raise
    except (Exception, SystemExit) as error:  # a module may raise anything
        raise Broken(where, error) from error


def _module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the directory where the command was typed
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # something that the module itself needs
        raise NotThere(f"There is no module called {name!r}") from None


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotThere(f"There is no file {path}")
    with _importing.setdefault(path.resolve(), RLock()):
        return _imported(path)


def _imported(path: Path) -> ModuleType:
    known = sys.modules.get(path.stem)
    source = getattr(known, "__file__", None)
    if known is not None and source is not None and Path(source).resolve() == path.resolve():
        return known  # several things of one file are of one module
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NotThere(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # half of a module is none
        raise
    return module


# --- what is wrong with a module --------------------------------------------------------------------------------------


def _reason(error: BaseException) -> str:
    kind, said = type(error).__name__, " ".join(str(error).split())
    match error:
        case ImportError():
            return said or kind  # which says what is missing
        case SyntaxError():
            return f"{kind}: {error.msg}"
        case SystemExit():
            return f"it ends the process: sys.exit({error.code!r})"
    return f"{kind}: {said}" if said else kind


def _lines(error: BaseException) -> str:
    """Return where an error was raised, without those lines that import modules or are ours."""
    found = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in found.stack if not frame.filename.startswith(OURS)]
    lines = traceback.StackSummary.from_list(frames).format()
    if isinstance(error, SyntaxError):
        lines += list(found.format_exception_only())[:-1]  # the last one is the reason
    return "".join(lines).rstrip("\n")
