"""What the documentation draws is what the code says."""

import re
import tomllib
from pathlib import Path

from accord.app.application import Application
from accord.config import load
from accord.core.quotas import Quotas
from accord.core.roles import BUILT_IN
from accord.protocol.lifecycle import ENDED, TRANSITIONS
from accord.testing import call, lifespan

ARCHITECTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


def test_the_diagram_of_states_is_the_transition_table() -> None:
    drawn = re.findall(r"^ {4}(\w+) --> (\w+)$", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    stated = {
        (before.name, after.name)
        for before, followers in TRANSITIONS.items()
        for after in followers
        if after not in ENDED and before is not after
    }
    assert set(drawn) == stated
    assert len(drawn) == len(stated)


def test_the_documentation_names_every_limit_and_every_role() -> None:
    written = (ARCHITECTURE.parent / "limits.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in written.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*Quotas.__struct_fields__, *(role.name for role in BUILT_IN)}


def test_the_settings_in_the_documentation_are_settings(tmp_path: Path) -> None:
    written = (ARCHITECTURE.parent / "server.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", written, re.DOTALL)
    file = tmp_path / "accord.toml"
    file.write_text(shown, encoding="utf-8")
    settings = load(file, {"WEBHOOK_KEY": "0123456789abcdef"}).settings
    assert settings.server.url == "https://agents.example"
    assert settings.push.signing_keys == ("0123456789abcdef",)
    assert set(tomllib.loads(shown)) <= set(settings.__struct_fields__)


async def test_the_mounted_example_serves_its_agent_below_its_path() -> None:
    from examples.mounted import agents, app

    assert isinstance(agents, Application)
    async with lifespan(app):
        path, host = "/booking/.well-known/agent-card.json", {"host": "shop.example"}
        card = (await call(app, method="GET", path=path, headers=host)).json()
        assert (await call(app, method="GET")).json()["card"] == "/booking/.well-known/agent-card.json"
    assert card["name"] == "booking"
    assert card["supportedInterfaces"][0]["url"] == "http://shop.example/booking/"
