"""Lazy imports of public names, so that using one module does not import all.

This is the lowest layer, because packages of every layer have lazy names. It imports nothing by itself.
"""

from collections.abc import Callable, Mapping
from typing import Any


def lazily(module: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module; `homes` maps source modules to the names they define.

    A source module that begins with a dot is relative to `module`. A name may also be that of the source module.
    """

    def found(name: str) -> Any:
        from importlib import import_module

        for home, names in homes.items():
            if name in names:
                source = import_module(home, module)
                return source if home.endswith(f".{name}") else getattr(source, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return found
