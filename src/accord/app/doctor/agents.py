"""The agents: whether each is imported, has what it needs installed, and can be described by a card.

They are made and not started; agents elsewhere are `reach`'s.
"""

from collections.abc import Callable, Iterator
from functools import partial

from accord.agents.loader import NotAnAgent, load
from accord.app import cards
from accord.app.agents import agent_of
from accord.app.doctor.aside import aside
from accord.app.doctor.findings import Check, Finding, Patient, failed, ok, warning
from accord.client.interfaces import CardHostTrust, keep_usable_interfaces
from accord.config.files import BadSettings
from accord.engine.agent import Agent
from accord.errors import AccordError
from accord.protocol.cards import decode_card, encode_card
from accord.protocol.urls import slug
from accord.service.service import Offers

INSTALL = "pip install"


def checks(patient: Patient) -> Iterator[Check]:
    """Yield what to look at: one agent each, as importing one may take for ever."""
    for target in patient.targets:
        yield Check(f"agent {target}", partial(_made, f"agent {target}", partial(load, target, patient.env)))
    for name in patient.settings.agents:
        yield Check(
            f"agent {name}", partial(_made, f"agent {name}", partial(agent_of, name, patient.loaded, patient.env))
        )
    if not patient.targets and not patient.settings.agents and not patient.settings.remotes:
        yield Check("agents", _nobody)


async def _nobody(_: Patient) -> list[Finding]:
    remedy = "name one in [agents], or as module:name after `accord serve`"
    return [warning("agents", "none is named: an echo is served", remedy)]


async def _made(check: str, make: Callable[[], Agent], patient: Patient) -> list[Finding]:
    try:
        agent = await aside(make)
    except (NotAnAgent, BadSettings) as error:
        said = str(error)
        at = said.find(INSTALL)
        return [failed(check, error, said[at:] if at >= 0 else "mend what it says, or leave the agent out")]
    return [_described(check, agent, patient)]


def _described(check: str, agent: Agent, patient: Patient) -> Finding:
    """Say whether an agent has a path to itself, and its card is one that clients can use."""
    profile, server = agent.profile, patient.settings.server
    path = cards.AGENTS + slug(profile.name)
    if (other := patient.named.setdefault(path, check)) != check:
        return failed(check, f"{profile.name!r} would be at {path}, as {other} is", "give one of them another name")
    place = cards.Endpoints(patient.url + path)
    facts = cards.Facts(dialects=frozenset(server.dialects), schemes={})
    card = cards.describe(profile, place, Offers(), facts)
    try:
        decode_card(encode_card(card, facts.dialects))
    except AccordError as error:
        wrong = "; ".join(f"{field}: {why}" for field, why in error.violations)
        return failed(check, f"its card is not valid: {wrong or error}", "mend what the agent says about itself")
    kept, found = keep_usable_interfaces(card, place.url, CardHostTrust())
    if not kept.supported_interfaces:
        return failed(check, f"its card: {'; '.join(map(str, found))}", "mend server.url")
    if found:
        return warning(check, f"its card: {'; '.join(map(str, found))}", "mend what the agent says about itself")
    skills = ", ".join(skill.name for skill in profile.skills)
    return ok(check, f"{profile.name} {profile.version}: {skills}")
