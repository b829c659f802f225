"""Checks of a server's settings and surroundings for `accord doctor`.

All checks run concurrently, each within a time limit, and change nothing. The checks of keys, of other servers and of
the machine are here, the others in `doctor_checks`. No secret is in a finding. `accord doctor` prints them.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from msgspec import structs

from accord import entries
from accord.auth.jwt import Jwks
from accord.auth.scheme_settings import ApiKeys, Jwt
from accord.auth.schemes import FetchError
from accord.client.credentials import KeyManagementError
from accord.client.discovery import WELL_KNOWN
from accord.engine.webhook_secrets import WebhookSecrets
from accord.http.operator_endpoints import HEALTH_PATH
from accord.outbound import HttpReply, HttpSession, Policy, Unreachable
from accord.protocol import urls
from accord.protocol.jose import BadSignature
from accord.server import doctor_checks
from accord.server.agents import remote_agents
from accord.server.application import own_url_of, url_of
from accord.server.credentials import TENANT, own_keys, sealed_keys, seals_of
from accord.server.doctor_checks import (
    CheckFinding,
    ExaminedServer,
    ServerCheck,
    failed,
    netloc_of,
    ok,
    run_in_daemon_thread,
    warning,
)
from accord.server.http_server import CannotListen, check_tls, listen
from accord.server.optional_services import card_signer, key_fetcher, trusted_signers
from accord.server.settings import CredentialSettings, HttpServer
from accord.server.settings_loader import BadSettings, LoadedSettings
from accord.server.startup import configuration_problem, exposure_problem
from accord.storage import schema
from accord.storage.address import (
    BadAddress,
    PostgresAddress,
    SqliteAddress,
    default_address,
    open_store,
    parse_address,
)
from accord.storage.commands import authentication, webhooks
from accord.storage.store import Store, StoreRefused, StoreUnavailable

DAY = 24 * 3600
MAX_WEBHOOKS = 1000
"""Maximum number of webhooks whose secrets are checked."""

SOON_DAYS = 14
"""Days before expiry from which on a renewal is due."""


def key_checks(patient: ExaminedServer) -> Iterator[ServerCheck]:
    """Yield the checks of keys and credentials."""
    settings = patient.settings
    if settings.card.signing_key is not None:
        yield ServerCheck("signing key", _signing)
    if settings.registry.signers is not None:
        yield ServerCheck("signers", _signers)
    if settings.server.tls_cert:
        yield ServerCheck("certificate", _certificate)
    if any(isinstance(scheme, ApiKeys) for scheme in settings.auth.schemes):
        yield ServerCheck("api keys", _api_keys)
    yield ServerCheck("credentials", _credentials)
    yield ServerCheck("webhook secrets", _webhook_secrets)
    if any(remote.key for remote in settings.remotes.values()):
        yield ServerCheck("credentials", _missing_credentials)


async def _signing(patient: ExaminedServer) -> list[CheckFinding]:
    try:
        card_signer(patient.settings.card)
    except ValueError as error:
        return [failed(f"card.signing_key: {error}", "name the file of a private JSON Web Key")]
    if urls.is_this_machine(urls.host_of(patient.url)):
        told = "cards are signed for callers on this machine only: no other address of the server is known"
        return [warning(told, "set server.url to the address that callers use")]
    return [ok("cards can be signed")]


async def _signers(patient: ExaminedServer) -> list[CheckFinding]:
    try:
        trusted_signers(patient.settings.registry)
    except BadSettings as error:
        return [failed(error, "name the file of a JSON Web Key set")]
    return [ok("the keys of registry.signers can be read")]


async def _certificate(patient: ExaminedServer) -> list[CheckFinding]:
    from cryptography.x509 import load_pem_x509_certificates

    server = patient.settings.server
    try:
        check_tls(server)
        chain = load_pem_x509_certificates(await asyncio.to_thread(Path(server.tls_cert or "").read_bytes))
    except (CannotListen, OSError, ValueError) as error:
        return [failed(error, "name a certificate chain and its key, in PEM")]
    until = min(one.not_valid_after_utc for one in chain)
    days = (until - datetime.now(UTC)).total_seconds() / DAY
    if days > SOON_DAYS:
        return [ok(f"good until {until:%Y-%m-%d}")]
    told = f"it {'expires' if days > 0 else 'expired'} on {until:%Y-%m-%d}"
    return [warning(told, "renew it") if days > 0 else failed(told, "renew it")]


# --- in the store -----------------------------------------------------------------------------------------------------


async def _api_keys(patient: ExaminedServer) -> list[CheckFinding]:
    make = "make one: accord apikeys create"
    try:
        async with _open_store(patient) as store:
            found = [key for key in await store.read(authentication.list_api_keys) if key.is_live]
    except (StoreRefused, StoreUnavailable):
        return [warning("there is no store yet that has some", make)]
    if not found and len(patient.settings.auth.schemes) == 1:
        return [warning("there is none, so nobody gets in", make)]
    ends = [key.id for key in found if key.expires_at and key.expires_at / 1000 < time.time() + SOON_DAYS * DAY]
    if ends:
        return [warning(f"within {SOON_DAYS} days these expire: {', '.join(ends)}", make)]
    return [ok(f"{len(found)} that can be used")]


async def _credentials(patient: ExaminedServer) -> list[CheckFinding]:
    settings = patient.settings.credentials
    has_keys = bool(settings.keys or settings.key_file)
    try:
        async with _open_store(patient) as store:
            kept = await store.read(authentication.list_credentials, TENANT)
            if has_keys:
                await sealed_keys(store, settings).every(TENANT)
    except (StoreRefused, StoreUnavailable):
        kept = []  # the store's check reports it
    except (KeyManagementError, BadSettings) as error:
        return [failed(error, "set credentials.keys to the key that sealed them")]
    if kept and not has_keys:
        told = f"the store has {len(kept)} that cannot be opened: there is no key"
        return [warning(told, "set credentials.keys to the key that sealed them")]
    return [ok(f"{len(kept)} can be opened")] if kept else []


async def _webhook_secrets(patient: ExaminedServer) -> list[CheckFinding]:
    """Check whether webhook secrets in the store are in plain text or sealed by an old key."""
    settings = patient.settings.credentials
    try:
        secrets = WebhookSecrets(seals_of(settings) if settings.keys or settings.key_file else None)
        async with _open_store(patient) as store:
            kept = await store.read(webhooks.page, ("", "", ""), MAX_WEBHOOKS)
    except (StoreRefused, StoreUnavailable, KeyManagementError, BadSettings):
        return []  # the checks of the store or the credentials report it
    if bad := sum(not secrets.is_sealed(one.config) for one in kept):
        told = f"{bad} of {len(kept)} webhooks have theirs in plain text, or sealed by an old key"
        return [warning(told, "set credentials.keys, then: accord creds rotate")]
    return []


async def _missing_credentials(patient: ExaminedServer) -> list[CheckFinding]:
    settings = patient.settings
    wanted = {name: remote.key for name, remote in settings.remotes.items() if remote.key}
    try:
        async with _open_store(patient):
            known = await own_keys(settings, patient.env)
    except (StoreRefused, StoreUnavailable):  # it has none yet
        known = await own_keys(structs.replace(settings, credentials=CredentialSettings()), patient.env)
    except (KeyManagementError, BadSettings):
        return []  # the check of stored credentials reports it
    missing = {key: name for name, key in wanted.items() if known.find(key) is None}
    return [
        failed(f"{key}, which remotes.{name} is called with, is not there", f"accord creds set {key}")
        for key, name in missing.items()
    ]


@asynccontextmanager
async def _open_store(patient: ExaminedServer) -> AsyncIterator[Store]:
    """Open the store for reading. Raises StoreRefused if it does not exist or has another schema."""
    address = patient.address
    if isinstance(address, SqliteAddress) and not (address.path and address.path.exists()):
        raise StoreRefused("The database does not exist yet")
    if isinstance(address, PostgresAddress):
        address = replace(address, listen=False, signals=())
    async with open_store(address, read_only=True) as store:
        await schema.check_schema(store)
        yield store


ASK_SECONDS = 8.0
"""Seconds for a request: less than the limit of a check, so that its own error is reported."""

NEAR_SECONDS = 2.0
"""Seconds for a request to this machine."""

HEALTHY = b'"status":"ok"'
"""The health response of an accord server."""


def network_checks(patient: ExaminedServer) -> Iterator[ServerCheck]:
    """Yield the checks of other servers."""
    settings = patient.settings
    if settings.server.url:
        yield ServerCheck("public url", _public_url)
    for name in settings.remotes:
        yield ServerCheck(f"remote {name}", partial(_remote, name))
    for scheme in settings.auth.schemes:
        if isinstance(scheme, Jwt) and scheme.secret is None:
            yield ServerCheck(f"issuer {scheme.issuer}", partial(_issuer, scheme))
    for check, url in (("receiver.url", settings.receiver.url), ("registry.url", settings.registry.url)):
        if url:
            yield ServerCheck(check, partial(_answers, url))
    for host in settings.push.allow_hosts:
        if "*" not in host:
            yield ServerCheck(f"webhooks {host}", partial(_resolves, host))


async def _public_url(patient: ExaminedServer) -> list[CheckFinding]:
    """Request this server's health at its public URL. The server may not be running."""
    url = f"{patient.url}{HEALTH_PATH}"
    try:
        answer = await get_url(patient, url)
    except Unreachable as error:
        if await is_up(patient):
            remedy = "see that the name, the proxy and the firewall lead to this server, which is up"
            return [failed(f"{patient.url}: {error}", remedy)]
        remedy = "start the server and look again; if it is up elsewhere, see what is between"
        return [warning(f"{patient.url}: {error}", remedy)]
    if answer.status == 200 and HEALTHY in answer.body:
        return [ok(f"{patient.url} answers")]
    remedy = "see where the name and the proxy lead: this is no server of accord that is well"
    return [failed(f"{url} answers {answer.status}", remedy)]


async def is_up(patient: ExaminedServer) -> bool:
    """Whether an accord server listens on this machine at this server's address."""
    try:
        answer = await get_url(None, f"{own_url_of(patient.settings.server)}{HEALTH_PATH}", NEAR_SECONDS)
    except Unreachable:
        return False
    return answer.status == 200 and HEALTHY in answer.body


async def _remote(name: str, patient: ExaminedServer) -> list[CheckFinding]:
    """Fetch the card of a remote agent as the server would, and note the clock of its host."""
    stated = patient.settings.remotes[name]
    try:
        agents = remote_agents(patient.settings, patient.env)
    except BadSettings as error:
        return [failed(error, "mend what it says")]
    agent = next(one for one in agents if one.profile.name == name)
    try:
        contact = await agent.check()
    finally:
        await agent.leave()
    if not contact.is_up:
        return [failed(contact.detail, "see that it runs, and that address and credentials are right")]
    if stated.url.startswith(("http://", "https://")):
        await _note_date(patient, stated.url.rstrip("/") + WELL_KNOWN[0])
    if contact.findings:
        return [warning(f"its card: {'; '.join(contact.findings)}", "tell those who run it")]
    return [ok(f"{agent.profile.description} ({stated.url})")]


async def _note_date(patient: ExaminedServer, url: str) -> None:
    """Note another host's clock from its `Date` header."""
    try:
        await get_url(patient, url)
    except Unreachable:
        return  # its card may be at another address, and was read


async def _issuer(scheme: Jwt, patient: ExaminedServer) -> list[CheckFinding]:
    async with HttpSession.strict(Policy(allow_private=True), total_seconds=ASK_SECONDS) as outbound:
        try:
            keys = await Jwks(key_fetcher(outbound), scheme.issuer, scheme.jwks_url).read()
        except (FetchError, OSError, BadSignature) as error:
            return [failed(error, "see that issuer and jwks_url are right, and can be reached from here")]
    await _note_date(patient, scheme.jwks_url or scheme.issuer)
    return [ok(f"{len(keys)} keys")]


async def _answers(url: str, patient: ExaminedServer) -> list[CheckFinding]:
    try:
        answer = await get_url(patient, url)
    except Unreachable as error:
        return [failed(f"{url}: {error}", "see that it runs, and that the address is right")]
    if answer.status >= 500:
        return [failed(f"{url} answers {answer.status}", "see what is wrong with it, or what is in front of it")]
    return [ok(f"{url} answers")]


async def _resolves(host: str, _: ExaminedServer) -> list[CheckFinding]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        remedy = "mend the name in push.allow_hosts, or what resolves it"
        return [warning(f"{host} has no address: {error.strerror}", remedy)]
    return [ok(", ".join(sorted({str(address[0]) for *_, address in found})))]


async def get_url(patient: ExaminedServer | None, url: str, seconds: float = ASK_SECONDS) -> HttpReply:
    """Request an operator's URL, and note the clock of its host for `patient`."""
    async with HttpSession.strict(Policy(allow_private=True), total_seconds=seconds) as outbound:
        before = time.time()
        answer = await outbound.request("GET", url)
        middle = (before + time.time()) / 2
    stated = answer.headers.get("Date")
    if patient is not None and stated is not None:
        with suppress(ValueError):  # an invalid date is ignored
            patient.dates[netloc_of(url)] = parsedate_to_datetime(stated).timestamp() - middle
    return answer


MIN_OPEN_FILES = 4096
"""Minimum limit of open files: a stream is one, and the limits let a caller hold a thousand."""

TAKEN_PORT_FIX = (
    "nothing, if it is this very server; a second one cannot listen there: stop the first, or choose another port"
)
"""Remedy if an accord server already uses the port."""


def machine_checks(patient: ExaminedServer) -> Iterator[ServerCheck]:
    """Yield the checks of this machine."""
    server = patient.settings.server
    yield ServerCheck("port", partial(_port, server.port))
    if server.grpc_port is not None:
        yield ServerCheck("grpc port", partial(_port, server.grpc_port))
    yield ServerCheck("open files", _open_files)
    yield ServerCheck("extras", _extras)
    yield ServerCheck("plugins", _plugins)


async def _port(port: int, patient: ExaminedServer) -> list[CheckFinding]:
    server = patient.settings.server
    try:
        listen(structs.replace(server, port=port)).close()
    except CannotListen as error:
        if await is_up(patient):
            return [warning(f"a server of accord listens on {server.host}:{port} already", TAKEN_PORT_FIX)]
        detail, _, remedy = str(error).partition(". ")
        return [failed(detail, remedy)]
    return [ok(f"{server.host}:{port} is free")]


async def _open_files(_: ExaminedServer) -> list[CheckFinding]:
    try:
        import resource
    except ImportError:
        return []  # there is no such limit on this system
    most, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = "any number" if most == resource.RLIM_INFINITY else str(most)
    if most != resource.RLIM_INFINITY and most < MIN_OPEN_FILES:
        remedy = f"raise the limit: ulimit -n {16 * MIN_OPEN_FILES}, or LimitNOFILE= in a systemd unit"
        return [warning(f"{told} at a time, and each stream is one", remedy)]
    return [ok(f"{told} at a time")]


async def _extras(patient: ExaminedServer) -> list[CheckFinding]:
    """Check that the extras that settings need are installed. Checks of agents report theirs."""
    server, address = patient.settings.server, patient.address
    schemes = {one.partition("://")[0] for one in address.signals} if isinstance(address, PostgresAddress) else set()
    asked_for = {
        "granian": (server.server is HttpServer.GRANIAN, ("granian",)),
        "grpc": (server.grpc_port is not None, ("grpc", "a2a")),
        "nats": (bool(schemes & {"nats", "tls"}), ("nats",)),
        "otel": (patient.settings.telemetry.traces is True, ("opentelemetry.sdk",)),
    }
    wanted = {extra: modules for extra, (is_asked_for, modules) in asked_for.items() if is_asked_for}
    missing = [extra for extra, modules in wanted.items() if not all(map(_is_installed, modules))]
    if not missing:
        return [ok(f"{', '.join(wanted)} installed")] if wanted else []
    return [failed(f"{extra} is not installed", f"pip install 'accord[{extra}]'") for extra in missing]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False  # its parent package is not installed


async def _plugins(_: ExaminedServer) -> list[CheckFinding]:
    """List installed plugins, and report those that cannot be used."""
    found = await run_in_daemon_thread(partial(entries.installed_plugins, check=True))
    broken = [one for one in found if one.problem is not None]
    if not broken:
        return [ok(", ".join(f"{one.name} ({one.package} {one.version})" for one in found))] if found else []
    return [warning(one.problem or "", f"mend it, or pip uninstall {one.package}") for one in broken]


CHECK_SECONDS = 10.0
"""Maximum seconds of one check."""

CHECKS = doctor_checks.store_checks, key_checks, doctor_checks.agent_checks, network_checks, machine_checks


async def examine(
    loaded: LoadedSettings, targets: tuple[str, ...], env: Mapping[str, str], seconds: float = CHECK_SECONDS
) -> list[CheckFinding]:
    """Run all checks of the settings and of a command's agents."""
    try:
        address = parse_address(loaded.settings.store) if loaded.settings.store else default_address(env)
    except BadAddress as error:
        return [failed(loaded.bad("store", error), "write the address of a store", check="configuration")]
    url = url_of(loaded.settings.server)
    patient = ExaminedServer(loaded=loaded, targets=targets, address=address, url=url, env=env)
    everything = [check for checks in CHECKS for check in checks(patient)]
    looked = await asyncio.gather(*(_bounded(check, patient, seconds) for check in everything))
    return [
        _configuration(patient),
        *(one for findings in looked for one in findings),
        *doctor_checks.compare_clocks(patient),
    ]


async def _bounded(check: ServerCheck, patient: ExaminedServer, seconds: float) -> list[CheckFinding]:
    try:
        async with asyncio.timeout(seconds):
            found = await check.look(patient)
    except TimeoutError:
        found = [failed(f"No answer within {seconds:g} seconds", "look at it again, or see what holds it up")]
    except Exception as error:  # an unexpected error is a finding too, and the other checks still count
        found = [failed(f"{type(error).__name__}: {error}", "this is not known to happen: report it")]
    return [structs.replace(one, check=one.check or check.name) for one in found]


def _configuration(patient: ExaminedServer) -> CheckFinding:
    if said := configuration_problem(patient.settings, patient.address) or exposure_problem(patient.settings):
        detail, _, remedy = said.partition(": " if "\n" not in said else "\n")
        return failed(detail, remedy or "name one that can be", check="configuration")
    files = {source for source in patient.loaded.sources.values() if not source.startswith(("--", "ACCORD_"))}
    return ok(", ".join(sorted(files)) or "no file of settings", check="configuration")
