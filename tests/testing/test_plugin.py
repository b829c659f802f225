"""The plugin of pytest, as its users have it: in a project of theirs, with nothing of ours but what is installed."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "testing"
"""An agent, `reminder.py`, and the tests of it."""
INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
HEAVY = {"accord.server", "accord.engine", "accord.model", "accord.storage", "aiohttp", "apsw", "msgspec", "uvicorn"}

INSTALLED = bool(entry_points(group="pytest11", name="accord"))
"""Whether pytest loads it by itself: not where the package was installed before it had one."""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    plugin = () if INSTALLED else ("-p", "accord.testing.plugin")
    return pytester.runpytest_subprocess(*plugin, "-p", "no:schemathesis", "-p", "no:cacheprovider", *arguments)


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """The example of the documentation, as a project of its own."""
    pytester.copy_example(str(EXAMPLE))
    pytester.makeini(INI)
    return pytester


def test_the_example_passes(project: pytest.Pytester) -> None:
    result = run(project, "-q", "test_reminder.py")
    result.assert_outcomes(passed=10)


def test_cassettes_are_recorded_from_the_named_agent(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(
        test_it="""
        from accord import Client
        from accord.testing import AsgiTransport, running, scripted
        from accord.testing.scripts import artifact

        URL = "https://weather.example"

        async def test_weather(accord_cassette):
            async with running(scripted(artifact("sunny")), server={"url": URL}) as there:
                async with accord_cassette("weather", transport=AsgiTransport(there.app)) as tape:
                    async with Client.connect(URL, transport=tape) as client:
                        assert (await client.send_text("now")).text == "sunny"
        """
    )
    run(pytester, "-q").stdout.fnmatch_lines(["*cassettes/weather.json does not exist*"])
    run(pytester, "-q", "--accord-record").assert_outcomes(passed=1)
    assert (pytester.path / "cassettes" / "weather.json").is_file()
    run(pytester, "-q").assert_outcomes(passed=1)


def test_unused_fixtures_import_nothing(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    pytester.makepyfile(
        test_it=f"""
        import sys

        def test_other():
            assert not {HEAVY!r} & set(sys.modules)
        """
    )
    run(pytester, "-q", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:xdist").assert_outcomes(passed=1)


def test_loading_it_imports_nothing_but_pytest() -> None:
    look = (
        "import sys, pytest; before = set(sys.modules); import accord.testing.plugin;"
        " print(*sorted(name for name in set(sys.modules) - before if not name.startswith('accord')))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert not HEAVY & set(done.stdout.split())


def test_a_failure_can_be_read(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(
        test_it="""
        from accord.testing import assert_task, scripted
        from accord.testing.scripts import artifact

        async def test_wrong(accord_server):
            async with accord_server(scripted(artifact("sunny"))) as server:
                assert_task(await server.send_text("now"), state="failed", text="rainy")
        """
    )
    run(pytester, "-q").stdout.fnmatch_lines(
        ["*The task * is not as expected:", "*state: completed, not failed", "*text: 'sunny', not 'rainy'"]
    )


def test_fixtures_have_docstrings(pytester: pytest.Pytester) -> None:
    shown = run(pytester, "--fixtures", "-q").stdout.str()
    for name in ("server", "client", "socket_server", "clock", "webhooks", "cassette"):
        assert f"accord_{name} -- " in shown or f"accord_{name}\n" in shown or f"accord_{name} " in shown
