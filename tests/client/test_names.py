"""Agents by their names, for programs that say no more than the name: the settings say where it is looked up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import accord
import accord.client
from accord import BlockingClient, Client, RemoteAgent
from accord.client import CardNotFound
from accord.model import Message, Part, Role, SendRequest, Task, TaskState
from tests.serve.running import Server, environment, running
from tests.serve.running import accord as command

AGENTS = Path(__file__).parent / "agents.py"
NAME = "acme/echo"

FAR = f"""
from accord import RemoteAgent

far = RemoteAgent("{NAME}", name="far")
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server that is a registry, with an agent of its own under a name; and its store."""
    folder = tmp_path_factory.mktemp("registry")
    store = f"sqlite:///{folder}/names.db"
    with running(folder, f"{AGENTS}:echo", "--store", store) as server:
        done = command(folder, "agents", "publish", server.url, "--name", NAME, ACCORD_STORE=store)
        assert done.returncode == 0, done.stderr
        yield server, store


@pytest.fixture(autouse=True)
def _nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin in an empty folder, without settings and without a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", environment(tmp_path))


def stated(way: str, server: Server, store: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say where names are looked up."""
    variables = {"ACCORD_REGISTRY_URL": server.url, "AGENTVAULT_REGISTRY_URL": server.url, "ACCORD_STORE": store}
    files = {"registry.url": f'[registry]\nurl = "{server.url}"\n', "store": f'store = "{store}"\n'}
    if way in variables:
        monkeypatch.setenv(way, variables[way])
    else:
        (folder / "accord.toml").write_text(files[way], encoding="utf-8")


@pytest.mark.proves("0-17")
@pytest.mark.parametrize(
    "way", ["ACCORD_REGISTRY_URL", "AGENTVAULT_REGISTRY_URL", "ACCORD_STORE", "registry.url", "store"]
)
async def test_a_name_is_enough_wherever_an_address_is(
    way: str, registry: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated(way, *registry, tmp_path, monkeypatch)
    async with Client.connect(NAME) as client:
        assert (await client.send_text("a b")).text == "a b "
    with BlockingClient("Acme/Echo") as blocking:
        assert blocking.send_text("c").text == "c "
    agent = RemoteAgent(NAME, name="far")
    await agent.prepare()
    assert agent.profile.description == "Says what it is told, word by word"
    await agent.leave()


def test_remote_agents_are_served_by_name(registry: tuple[Server, str], tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text(FAR, encoding="utf-8")
    mine = f"sqlite:///{tmp_path}/mine.db"
    with (
        running(tmp_path, "far.py:far", "--store", mine, ACCORD_REGISTRY_URL=registry[0].url) as server,
        BlockingClient(server.url) as client,
    ):
        assert client.card.name == "far"
        assert client.send_text("from afar").text == "from afar "


async def test_unknown_names_are_errors(registry: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_REGISTRY_URL", registry[0].url)
    with pytest.raises(CardNotFound, match="There is no agent") as missing:
        await Client.connect("acme/nobody")
    assert list(missing.value.tried) == ["acme/nobody"]
    agent = RemoteAgent("acme/nobody", name="far")
    await agent.prepare()  # it may be published later
    assert agent.profile.description == "The agent at acme/nobody"
    await agent.leave()


def test_tasks_for_unknown_names_fail_at_once(registry: tuple[Server, str], tmp_path: Path) -> None:
    (tmp_path / "far.py").write_text(FAR.replace(NAME, "acme/nobody"), encoding="utf-8")
    mine = f"sqlite:///{tmp_path}/mine.db"
    with (
        running(tmp_path, "far.py:far", "--store", mine, ACCORD_REGISTRY_URL=registry[0].url) as server,
        BlockingClient(server.url) as client,
    ):
        message = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hello"),))
        task = client.send(SendRequest(message=message), seconds=60)  # other ways that fail take minutes
        assert isinstance(task, Task)
        assert task.status.state is TaskState.FAILED
        assert "There is no agent 'acme/nobody'" in str(task.status.message)


def test_names_without_a_registry_explain_the_fix(tmp_path: Path) -> None:
    with pytest.raises(CardNotFound, match="ACCORD_REGISTRY_URL"):
        BlockingClient(NAME)
    assert list(tmp_path.iterdir()) == []


def test_all_import_paths_give_one_client() -> None:
    assert accord.Client is accord.client.Client
    assert accord.BlockingClient is accord.client.BlockingClient
