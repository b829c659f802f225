"""Public names that are imported when they are used: each is there, has one home, and is imported no sooner."""

import subprocess
import sys
from importlib import import_module

import pytest

MODULES = (
    "accord",
    "accord.api",
    "accord.api.access",
    "accord.api.directory",
    "accord.client",
    "accord.testing",
    "accord.workflows",
)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_there_and_has_one_home(name: str) -> None:
    module = import_module(name)
    homes = [public for names in module._HOMES.values() for public in names]
    assert sorted(homes) == sorted(public for public in module.__all__ if public != "__version__")
    for public in module.__all__:
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing_like_this'"):
        _ = module.nothing_like_this


@pytest.mark.parametrize("name", MODULES)
def test_nothing_that_takes_long_is_imported_before_it_is_used(name: str) -> None:
    code = f"import sys, {name}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"msgspec", "aiohttp", "accord.engine", "accord.model"} & set(ran.stdout.split())
