"""Lazy imports of public names, so that using one module does not import all.

This is the lowest layer, because packages of every layer have lazy names. It imports nothing by itself.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(module: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module; `homes` maps source modules to the names they define.

    A source module that begins with a dot is relative to `module`. A name may also be that of the source module.
    """

    def load(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                source = import_module(home, module)
                return source if home.endswith(f".{name}") else getattr(source, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return load


def deferred(target: str) -> Callable[..., Any]:
    """Return a function that calls `target`, as `module:name`, whose module is imported on the first call."""

    def call(*args: Any, **kwargs: Any) -> Any:
        module, _, name = target.partition(":")
        return getattr(import_module(module), name)(*args, **kwargs)

    return call
