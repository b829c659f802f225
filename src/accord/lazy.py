"""Public names that are imported when they are used: who needs one module does not pay for all.

It is below everything, because packages of every layer have such names, and it imports nothing by itself.
"""

from collections.abc import Callable, Mapping
from typing import Any


def lazily(module: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module; `homes` are the modules that its names come from, with those names.

    One that begins with a dot is below the module.
    """

    def found(name: str) -> Any:
        from importlib import import_module

        for home, names in homes.items():
            if name in names:
                return getattr(import_module(home, module), name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return found
