"""Nodes of ISEK, and with them all agents elsewhere: the work is done by another server, here one of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accord.agents.remote.isek import AGENT_TYPE, IsekOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import function
from tests.agents.contract.subjects import PACKAGE, Subject, called
from tests.serve.running import Server

BEHAVIOURS = function.SUBJECT.has
NODE = "node"


@contextmanager
def beside(scratch: Path) -> Iterator[None]:
    """Run the other server, which offers streams and no webhooks: nobody listens where tests run an agent."""
    folder = scratch / NODE
    folder.mkdir()
    tables = [f'[agents.{name}]\ntarget = "{PACKAGE}.peers.functions:does.{name}"\n' for name in sorted(BEHAVIOURS)]
    (folder / "accord.toml").write_text("\n".join(tables))
    store = f"sqlite:///{folder}/accord.db"
    server = Server(folder, "--store", store, "--capabilities", "streaming", SCRATCH=str(scratch))
    try:
        (folder / "url").write_text(server.url)
        yield
    finally:
        server.kill()


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent whose tasks a function of the other server does."""
    url = (scratch / NODE / "url").read_text()
    return AGENT_TYPE.make(
        AgentArguments(options=IsekOptions(url=f"{url}/agents/{behaviour}"), name=called("isek", behaviour))
    )


HAS = BEHAVIOURS - {"stream"}
"""What is said before we follow comes in one piece; `held` shows the others."""

SUBJECT = Subject(kind="isek", make=make, has=HAS, crash=Crash.RESUME, lives_on=True, beside=beside)
