"""Kinds of agents: which there are, how things are recognized, what settings say, and a kind of somebody else's."""

import logging
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from accord.agents.echo import echo
from accord.agents.function import AGENT_TYPE as FUNCTION
from accord.agents.function import agent
from accord.agents.loader import NotAnAgent, ObjectNotFound, as_agent, import_object, load
from accord.agents.remote.agent import RemoteAgent
from accord.api import agent_types
from accord.api.agent_types import (
    AGENT_TYPES,
    AgentArguments,
    AgentType,
    Options,
    agent_type_of,
    is_instance_of,
    with_options,
)
from accord.engine.agent import Agent, Crash, Profile
from accord.entries import Unusable, registered
from accord.model import TaskState
from accord.protocol.budgets import Budget
from accord.remote.tasks import RemoteAgentPort
from accord.server.agents import agents_of
from accord.server.settings_loader import BadSettings
from accord.server.settings_loader import load as load_settings
from accord.testing import running, text_in
from tests.cases import each

PARROT = """
from accord.api.agent_types import AgentType, Options, profile

class Parrot:
    def __init__(self, sentence):
        self.sentence = sentence

class ParrotOptions(Options, frozen=True, kw_only=True):
    SECRET = frozenset({"password"})
    times: int = 1
    password: str | None = None

class ParrotAgent:
    def __init__(self, given):
        self.profile = profile(given, name="parrot", description="Repeats itself")
        self._says = given.target.sentence * given.options.times

    async def run(self, ctx):
        await ctx.artifact(self._says)

AGENT_TYPE = AgentType(
    name="parrot", options=ParrotOptions, make=ParrotAgent, recognizes=lambda thing: isinstance(thing, Parrot)
)
polly = Parrot("hello ")
"""


def install(folder: Path, source: str, entry_point: str) -> None:
    """Put a package where Python looks for packages, as an installer would."""
    (folder / "parrots.py").write_text(source)
    facts = folder / "parrots-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: parrots\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[accord.agents]\n{entry_point}\n")


Install = Callable[[str, str], None]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of somebody else's; it is gone in the end."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(source: str, entry_point: str) -> None:
        install(tmp_path, source, entry_point)
        registered.cache_clear()

    registered.cache_clear()
    yield put
    sys.modules.pop("parrots", None)
    registered.cache_clear()


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Agent]:
    """A function that makes the agent `x` that a file of settings describes."""
    monkeypatch.chdir(tmp_path)

    def make(table: str, env: dict[str, str] | None = None) -> Agent:
        Path("accord.toml").write_text(table)
        (found,) = agents_of(load_settings(env=env or {}), env or {})
        return found

    return make


def greet(text: str) -> str:
    """Greets."""
    return f"hello {text}"


@agent(description="Waves", skills=["wave"], timeout=5.0, concurrency=2)
async def wave(text: str) -> str:
    return "~"


shop = RemoteAgent("https://shop.example", name="shop")

HERE = f"{Path(__file__)}"

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "agents" / "README.md").read_text(encoding="utf-8")

FRAMEWORKS = {
    *("a2a", "agents", "crewai", "fasta2a", "langchain_core", "langgraph", "mcp", "openai", "pydantic", "pydantic_ai"),
    "temporalio",
}


# --- somebody else's kind ---------------------------------------------------------------------------------------------


async def test_third_party_agent_types_are_recognized(installed: Install, described: Callable[..., Agent]) -> None:
    installed(PARROT, "parrot = parrots:AGENT_TYPE")
    assert load("parrots:polly").profile.description == "Repeats itself"
    made = described(
        '[agents.x]\ntarget = "parrots:polly"\ntimes = "env:TIMES"\npassword = "env:SECRET"\nskills = ["talk"]',
        {"TIMES": "2", "SECRET": "hush"},
    )
    assert (made.profile.name, made.profile.skills[0].name) == ("x", "talk")
    async with running(made) as a2a:
        assert await a2a.ask_text("say") == "hello hello "
    assert "hush" not in repr(load_settings(env={"TIMES": "2", "SECRET": "hush"}).settings)


def test_broken_packages_are_logged_and_skipped(installed: Install, caplog: pytest.LogCaptureFixture) -> None:
    installed("raise RuntimeError('a mistake of theirs')", "parrot = parrots:AGENT_TYPE")
    with caplog.at_level(logging.ERROR, "accord.agents"):
        assert as_agent(Callable_(), "x").profile.name == "Callable_"
    assert "a mistake of theirs" in caplog.text
    with pytest.raises(Unusable, match=r"parrots 1\.0 cannot be used \(accord\.agents: parrot = .*a mistake of theirs"):
        AGENT_TYPES.load("parrot")


def test_a_kind_of_ours_is_not_replaced_unnoticed(installed: Install, caplog: pytest.LogCaptureFixture) -> None:
    installed(PARROT, "function = parrots:AGENT_TYPE")
    assert AGENT_TYPES.load("function") is FUNCTION
    with caplog.at_level(logging.ERROR, "accord.agents"):
        assert agent_type_of(Callable_()) is FUNCTION
    assert "accord itself registers this agent type" in caplog.text


def test_invalid_entry_points_are_refused(installed: Install) -> None:
    installed("AGENT_TYPE = 5", "parrot = parrots:AGENT_TYPE")
    with pytest.raises(
        Unusable, match=r"accord\.agents: parrot = parrots:AGENT_TYPE\): it must be of type AgentType, not int"
    ):
        AGENT_TYPES.load("parrot")


async def test_the_example_is_a_kind(installed: Install, described: Callable[..., Agent]) -> None:
    source = (ROOT / "examples" / "agents" / "own_agent_type.py").read_text()
    installed(source, "phrases = parrots:AGENT_TYPE")
    async with running(described('[agents.x]\ntarget = "parrots:italian"\npolite = true')) as a2a:
        assert await a2a.ask_text("bill") == "il conto , please."
        failed = await a2a.send_text("help")
        assert (failed.status.state, text_in(failed)) == (TaskState.FAILED, "That is not in the book")
    (shown,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    assert shown in source


# --- what is written about it -----------------------------------------------------------------------------------------


def test_the_documentation_lists_every_kind_and_every_common_option() -> None:
    before, _, after = DOCUMENT.partition("## Settings")
    assert re.findall(r"^\| `([\w-]+)` \|", before, re.MULTILINE) == AGENT_TYPES.names()
    cells = [line.split("|")[1] for line in after.splitlines() if line.startswith("| `")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named | {"type", "target"} == set(Options.__struct_fields__)


@each("name", AGENT_TYPES.ours)
def test_the_page_of_a_kind_names_every_option_of_its_own(name: str) -> None:
    page = ROOT / "docs" / "agents" / f"{name.replace('-', '_')}.md"
    cells = [line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {option for cell in cells for option in re.findall(r"`(\w+)`", cell)}
    assert set(AGENT_TYPES.load(name).options.__struct_fields__) - set(Options.__struct_fields__) <= named


def test_the_settings_in_the_documentation_make_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (shown,) = re.findall(r"```toml\n(.*?)```", DOCUMENT, re.DOTALL)
    Path("accord.toml").write_text(shown)
    made = {one.profile.name: one.profile for one in agents_of(load_settings(), {})}
    assert set(made) == {"booking", "shout", "other"}
    assert (made["shout"].description, made["shout"].timeout) == ("Says it louder", 60)
    assert (made["other"].crash, made["other"].budget.max_cost) == (Crash.FAIL, 0.5)


# --- recognizing ------------------------------------------------------------------------------------------------------


class Callable_:
    def __call__(self, text: str) -> str:
        return text


class Chair:
    pass


def test_the_most_specific_agent_type_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    def registering(*given: AgentType) -> None:
        monkeypatch.setattr(AGENT_TYPES, "entries", lambda: given)
        monkeypatch.setattr(AGENT_TYPES, "take", lambda kind: kind)

    def is_chair(thing: Any) -> bool:
        return isinstance(thing, Chair)

    def make(given: AgentArguments) -> Agent:
        return echo

    furniture = AgentType(name="furniture", make=make, recognizes=is_chair)
    seat = AgentType(name="seat", make=make, recognizes=is_chair, precedence=1)
    table = AgentType(name="table", make=make, recognizes=lambda thing: False, precedence=2)
    for order in ((furniture, seat, table), (table, seat, furniture)):
        registering(*order)
        assert agent_type_of(Chair()) is seat
        assert agent_type_of(5) is None


def test_objects_are_recognized_by_class_names() -> None:
    class Throne(Chair):
        pass

    assert is_instance_of(Throne(), f"{__name__}:Chair")
    assert not is_instance_of(Chair(), f"{__name__}:Throne", "elsewhere:Chair")


def test_all_built_in_agent_types_load_under_their_name() -> None:
    for name in AGENT_TYPES.names():
        kind = AGENT_TYPES.load(name)
        assert kind.name == name
        assert issubclass(kind.options, Options)
        if kind.recognizes is not None:
            kind.options()  # what a command names has none


def test_no_kind_loads_a_framework_before_an_agent_of_it_is_made() -> None:
    look = (
        "import sys; from accord.api import agent_types;"
        " agent_types.agent_type_of(object());"
        " [agent_types.AGENT_TYPES.load(name) for name in agent_types.AGENT_TYPES.names()];"
        f" print(*sorted({FRAMEWORKS!r} & {{name.partition('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_an_agent_is_taken_as_it_is_and_a_callable_object_is_one() -> None:
    assert as_agent(echo, "echo") is echo
    assert as_agent(Callable_(), "x").profile.name == "Callable_"


@pytest.mark.parametrize(("thing", "reason"), [(Chair, "but the class Chair"), (Chair(), "but Chair"), (5, "but int")])
def test_unrecognized_objects_are_refused(thing: Any, reason: str) -> None:
    with pytest.raises(NotAnAgent, match=reason):
        as_agent(thing, "x")


def of(module: str, name: str) -> type:
    """A class that a framework could have defined, without the framework."""
    return type(name, (), {"__module__": module})


@pytest.mark.parametrize(
    ("thing", "reason"),
    [
        (of("langgraph.graph.message", "MessageGraph")(), "a graph is served, by pip install 'accord[langgraph]'"),
        (type("Mine", (of("crewai.task", "Task"),), {})(), "a Crew, a Flow or an Agent is served, by pip install"),
        (of("google.adk.tools.base_tool", "BaseTool")(), "pip install 'accord[adk]'"),
        (of("crewai.crew", "Crew"), "the class Crew: make one, it is a class; of crewai.crew a Crew"),
        (of("agents.tool", "Tool")(), "decorate a function"),  # which may be anybody's
        (of("langgraphs", "Graph")(), "decorate a function"),
    ],
)
def test_framework_objects_name_the_missing_extra(thing: Any, reason: str) -> None:
    with pytest.raises(NotAnAgent, match=re.escape(reason)):
        as_agent(thing, "x")


def test_every_framework_is_an_extra_and_a_kind() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {one.extra for one in agent_types.FRAMEWORKS.values()}
    assert named <= extras.keys() & set(AGENT_TYPES.names())
    assert named == extras.keys() & set(AGENT_TYPES.names()), "a new kind of a framework has a row"


@pytest.mark.parametrize(("missing", "remedy"), [("crewai", ": pip install 'accord[crewai]'"), ("agents", "")])
def test_a_framework_that_is_missing_is_named_with_its_extra(
    missing: str, remedy: str, tmp_path: Path, described: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it were not installed
    file = tmp_path / "crew.py"
    file.write_text(f"import {missing}")
    for look in (lambda: load(f"{file}:crew"), lambda: described(f'agents.x.target = "{file}:crew"')):
        with pytest.raises((NotAnAgent, BadSettings)) as raised:
            look()
        assert str(raised.value).endswith(f"in sys.modules{remedy}")


def test_agent_type_errors_are_one_line(installed: Install, described: Callable[..., Agent]) -> None:
    picky = PARROT.replace(
        "def __init__(self, given):", "def __init__(self, given):\n        raise ValueError('times: no')"
    )
    installed(picky, "parrot = parrots:AGENT_TYPE")
    with pytest.raises(NotAnAgent, match=r"^parrots:polly: times: no$"):
        load("parrots:polly")
    with pytest.raises(BadSettings, match=r"^accord\.toml: agents\.x: times: no$"):
        described('agents.x.target = "parrots:polly"')


def test_frameworks_that_are_missing_are_reported_in_one_line(installed: Install, tmp_path: Path) -> None:
    missing = PARROT.replace("def __init__(self, given):", "def __init__(self, given):\n        import no_such_birds")
    installed(missing, "parrot = parrots:AGENT_TYPE")
    with pytest.raises(NotAnAgent, match=r"^parrots:polly: No module named .no_such_birds.$"):
        load("parrots:polly")
    file = tmp_path / "trip.py"
    file.write_text("import no_such_birds")
    with pytest.raises(ObjectNotFound, match=r"trip\.py cannot be imported: No module named 'no_such_birds'$"):
        import_object(f"{file}:graph")


# --- settings ---------------------------------------------------------------------------------------------------------


async def test_settings_override_a_function_s_description(described: Callable[..., Agent]) -> None:
    made = described(
        f"""
        [agents.x]
        type = "function"
        target = "{HERE}:greet"
        description = "Greets politely"
        version = "2.0"
        input_modes = ["text/plain"]
        on_crash = "fail"
        attempts = 7
        timeout = 2.5
        concurrency = 3
        max_tokens = 100
        max_cost = 0.5
        extended_skills = ["bow"]
        answers_message = true
        """
    )
    assert ([skill.name for skill in made.profile.extended_skills], made.profile.answers_message) == (["bow"], True)
    profile = made.profile
    assert (profile.name, profile.description, profile.version) == ("x", "Greets politely", "2.0")
    assert (profile.input_modes, profile.crash, profile.attempts) == (("text/plain",), Crash.FAIL, 7)
    assert (profile.timeout, profile.concurrency) == (2.5, 3)
    assert profile.budget == Budget(max_tokens=100, max_cost=0.5)
    async with running(made) as a2a:
        assert await a2a.ask_text("you") == "hello you"


def test_settings_keep_unmentioned_attributes(described: Callable[..., Agent]) -> None:
    made = described(f'[agents.x]\ntarget = "{HERE}:wave"\ntimeout = 9')
    assert made.profile == _but(wave.profile, name="x", timeout=9.0)
    assert described(f'agents.x = "{HERE}:wave"').profile == _but(wave.profile, name="x")


def test_options_are_stated_in_code() -> None:
    made = as_agent(greet, extended_skills=["bow"], timeout=2)
    assert ([skill.id for skill in made.profile.extended_skills], made.profile.timeout) == (["bow"], 2)
    with pytest.raises(NotAnAgent, match="unknown field `colour`"):
        as_agent(greet, colour="red")
    with pytest.raises(NotAnAgent, match="it is an agent already: state timeout where it is made"):
        as_agent(wave, timeout=2)


def test_remote_agents_keep_their_name(described: Callable[..., Agent]) -> None:
    assert described(f'agents.shop = "{HERE}:shop"') is sys.modules["test_agent_types"].shop
    table = described(f'[agents.shop]\ntarget = "{HERE}:shop"\ntimeout = 60')
    assert isinstance(table, RemoteAgentPort)
    assert (table.profile.name, table.profile.timeout) == ("shop", 60)
    with pytest.raises(BadSettings, match=r"agents\.x: it is a remote agent, so its name 'shop' must be changed"):
        described(f'agents.x = "{HERE}:shop"')


def test_a_variable_may_be_a_table(described: Callable[..., Agent]) -> None:
    table = f'{{"target": "{HERE}:greet", "timeout": 4}}'
    assert described("", {"ACCORD_AGENTS__X": table}).profile.timeout == 4
    assert described("", {"ACCORD_AGENTS__X": f"{HERE}:greet"}).profile.name == "x"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("", "agents.x: missing target or type"),
        ('type = "functoin"', "agents.x: unknown agent type 'functoin'; did you mean 'function'?"),
        ('type = "function"', "agents.x: missing target: set target = "),
        ('target = "HERE:greet"\ntimout = 5', "unknown setting agents.x.timout; did you mean agents.x.time"),
        ('target = "HERE:greet"\ntimeout = 0', "agents.x.timeout: Expected `float` > 0.0"),
        ('target = "HERE:greet"\non_crash = "run"', "agents.x.on_crash: 'run' is not one of resume, restart, fail"),
        ('target = "HERE:greet"\nskills = [1]', "agents.x.skills[0]: Expected `str`, got `int`"),
        ('target = "HERE:greet"\ndescription = "env:NONE"', "agents.x.description refers to NONE, which is not set"),
        ('target = "HERE:nothing"', "has no 'nothing'"),
        ("target = 5", "agents.x: '5' is not a valid name"),
        ('target = "HERE:HERE"', "agents.x: HERE:HERE is not an agent but str"),
        (
            'type = "function"\ntarget = "HERE:HERE"',
            "agents.x: 'HERE:HERE' is not a valid target for agent type 'function': it is a str",
        ),
        (
            'type = "langgraph"\ntarget = "HERE:greet"',
            "'HERE:greet' is not a valid target for agent type 'langgraph': it is a function",
        ),
    ],
)
def test_setting_errors_name_their_location(table: str, reason: str, described: Callable[..., Agent]) -> None:
    with pytest.raises(BadSettings) as raised:
        described(f"[agents.x]\n{table.replace('HERE:', f'{HERE}:')}")
    said = str(raised.value).replace(HERE, "HERE")
    assert said.startswith("accord.toml: ")
    assert reason in said


def test_a_kind_that_is_made_of_nothing_takes_no_target(installed: Install, described: Callable[..., Agent]) -> None:
    installed(re.sub(r", recognizes=.*", "", PARROT), "parrot = parrots:AGENT_TYPE")
    with pytest.raises(BadSettings, match="takes no target: remove it"):
        described('[agents.x]\ntype = "parrot"\ntarget = "parrots:polly"')


def test_an_agent_is_of_no_other_kind(installed: Install, described: Callable[..., Agent]) -> None:
    installed(PARROT, "parrot = parrots:AGENT_TYPE")
    with pytest.raises(BadSettings, match="is an agent already: remove the type"):
        described(f'[agents.x]\ntype = "parrot"\ntarget = "{HERE}:wave"')


def _but(profile: Profile, **changes: Any) -> Profile:
    return replace(profile, **changes)


def test_options_that_are_not_stated_change_nothing() -> None:
    assert with_options(wave.profile, AgentArguments(options=Options())) == wave.profile
