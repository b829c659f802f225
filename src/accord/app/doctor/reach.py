"""Who has to be reached: this server under its public address, agents elsewhere, issuers, the registry, webhooks.

One request each, within a bound; nobody is told anything. Every answer has a date, which `clocks` compares with ours.
"""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import partial

from accord.app.application import own_url_of
from accord.app.doctor.findings import Check, Finding, Patient, failed, host_of, ok, warning
from accord.app.outside import fetching
from accord.app.remotes import remote_agents
from accord.auth.jwt import Jwks
from accord.auth.scheme_settings import Jwt
from accord.auth.schemes import FetchError
from accord.bindings.health import HEALTH
from accord.client.discovery import WELL_KNOWN
from accord.config.files import BadSettings
from accord.outbound import HostUnreachable, Outbound, OutboundReply, Policy, TargetRefused
from accord.protocol.jose import BadSignature

ASK_SECONDS = 8.0
"""Less than a check may take, so that the reason is said and not that there was none."""

NEAR_SECONDS = 2.0
"""For this machine itself."""

UP = b'"status":"ok"'
"""What a server of accord says of its health."""


def checks(patient: Patient) -> Iterator[Check]:
    """Yield what to look at."""
    settings = patient.settings
    if settings.server.url:
        yield Check("public url", _public)
    for name in settings.remotes:
        yield Check(f"remote {name}", partial(_remote, name))
    for scheme in settings.auth.schemes:
        if isinstance(scheme, Jwt) and scheme.secret is None:
            yield Check(f"issuer {scheme.issuer}", partial(_issuer, scheme))
    for check, url in (("receiver.url", settings.receiver.url), ("registry.url", settings.registry.url)):
        if url:
            yield Check(check, partial(_answers, check, url))
    for host in settings.push.allow_hosts:
        if "*" not in host:
            yield Check(f"webhooks {host}", partial(_resolves, host))


async def _public(patient: Patient) -> list[Finding]:
    """Ask this server under its public address; it may not have been started yet."""
    url = f"{patient.url}{HEALTH}"
    try:
        answer = await asked(patient, url)
    except (TargetRefused, HostUnreachable) as error:
        if await is_up(patient):
            remedy = "see that the name, the proxy and the firewall lead to this server, which is up"
            return [failed("public url", f"{patient.url}: {error}", remedy)]
        remedy = "start the server and look again; if it is up elsewhere, see what is between"
        return [warning("public url", f"{patient.url}: {error}", remedy)]
    if answer.status == 200 and UP in answer.body:
        return [ok("public url", f"{patient.url} answers")]
    remedy = "see where the name and the proxy lead: this is no server of accord that is well"
    return [failed("public url", f"{url} answers {answer.status}", remedy)]


async def is_up(patient: Patient) -> bool:
    """Whether a server of accord listens on this machine where this one would."""
    try:
        answer = await asked(None, f"{own_url_of(patient.settings.server)}{HEALTH}", NEAR_SECONDS)
    except (TargetRefused, HostUnreachable):
        return False
    return answer.status == 200 and UP in answer.body


async def _remote(name: str, patient: Patient) -> list[Finding]:
    """Read the card of an agent elsewhere as the server would, and look what time it is there."""
    check, stated = f"remote {name}", patient.settings.remotes[name]
    try:
        agents = remote_agents(patient.settings, patient.env)
    except BadSettings as error:
        return [failed(check, error, "mend what it says")]
    agent = next(one for one in agents if one.profile.name == name)
    try:
        contact = await agent.check()
    finally:
        await agent.leave()
    if not contact.is_up:
        return [failed(check, contact.detail, "see that it runs, and that address and credentials are right")]
    if stated.url.startswith(("http://", "https://")):
        await _noted(patient, stated.url.rstrip("/") + WELL_KNOWN[0])
    if contact.findings:
        return [warning(check, f"its card: {'; '.join(contact.findings)}", "tell those who run it")]
    return [ok(check, f"{agent.profile.description} ({stated.url})")]


async def _noted(patient: Patient, url: str) -> None:
    """Note what time it is elsewhere, if somebody says so."""
    try:
        await asked(patient, url)
    except (TargetRefused, HostUnreachable):
        return  # its card may be elsewhere, and was read


async def _issuer(scheme: Jwt, patient: Patient) -> list[Finding]:
    check = f"issuer {scheme.issuer}"
    async with Outbound(Policy(allow_private=True), total_seconds=ASK_SECONDS) as outbound:
        try:
            keys = await Jwks(fetching(outbound), scheme.issuer, scheme.jwks_url).read()
        except (FetchError, OSError, BadSignature) as error:
            return [failed(check, error, "see that issuer and jwks_url are right, and can be reached from here")]
    await _noted(patient, scheme.jwks_url or scheme.issuer)
    return [ok(check, f"{len(keys)} keys")]


async def _answers(check: str, url: str, patient: Patient) -> list[Finding]:
    try:
        answer = await asked(patient, url)
    except (TargetRefused, HostUnreachable) as error:
        return [failed(check, f"{url}: {error}", "see that it runs, and that the address is right")]
    if answer.status >= 500:
        return [failed(check, f"{url} answers {answer.status}", "see what is wrong with it, or what is in front of it")]
    return [ok(check, f"{url} answers")]


async def _resolves(host: str, _: Patient) -> list[Finding]:
    check = f"webhooks {host}"
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        remedy = "mend the name in push.allow_hosts, or what resolves it"
        return [warning(check, f"{host} has no address: {error.strerror}", remedy)]
    return [ok(check, ", ".join(sorted({str(address[0]) for *_, address in found})))]


async def asked(patient: Patient | None, url: str, seconds: float = ASK_SECONDS) -> OutboundReply:
    """Ask for an address that the operator names, and note for a patient what time it is there."""
    async with Outbound(Policy(allow_private=True), total_seconds=seconds) as outbound:
        before = time.time()
        answer = await outbound.request("GET", url)
        middle = (before + time.time()) / 2
    stated = answer.headers.get("Date")
    if patient is not None and stated is not None:
        with suppress(ValueError):  # one that cannot be read says nothing
            patient.dates[host_of(url)] = parsedate_to_datetime(stated).timestamp() - middle
    return answer
