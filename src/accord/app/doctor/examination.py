"""Whether a server could work as its settings say: every check at once, each within a bound, and nothing is changed.

What is looked at is in the modules beside this one; starting a server is `app.application`. `accord doctor` stands
above and prints what is found.
"""

import asyncio
from collections.abc import Mapping

from accord.app.application import url_of
from accord.app.doctor import agents, clocks, keys, machine, reach, stores
from accord.app.doctor.findings import Check, Finding, Patient, failed, ok
from accord.app.serving import danger, mistake
from accord.config.load import Loaded
from accord.storage.address import BadAddress, default_address, parse_address

SECONDS = 10.0
"""How long one check may take."""

CHECKS = stores.checks, keys.checks, agents.checks, reach.checks, machine.checks


async def examine(
    loaded: Loaded, targets: tuple[str, ...], env: Mapping[str, str], seconds: float = SECONDS
) -> list[Finding]:
    """Look at everything that the settings and the agents of a command name."""
    try:
        address = parse_address(loaded.settings.store) if loaded.settings.store else default_address(env)
    except BadAddress as error:
        return [failed("configuration", loaded.bad("store", error), "write the address of a store")]
    url = url_of(loaded.settings.server)
    patient = Patient(loaded=loaded, targets=targets, address=address, url=url, env=env)
    everything = [check for checks in CHECKS for check in checks(patient)]
    looked = await asyncio.gather(*(_bounded(check, patient, seconds) for check in everything))
    return [_configuration(patient), *(one for findings in looked for one in findings), *clocks.compared(patient)]


async def _bounded(check: Check, patient: Patient, seconds: float) -> list[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await check.look(patient)
    except TimeoutError:
        return [
            failed(check.name, f"No answer within {seconds:g} seconds", "look at it again, or see what holds it up")
        ]
    except Exception as error:  # what nobody foresaw is what somebody asked a doctor for; the others still count
        return [failed(check.name, f"{type(error).__name__}: {error}", "this is not known to happen: report it")]


def _configuration(patient: Patient) -> Finding:
    if said := mistake(patient.settings, patient.address) or danger(patient.settings):
        detail, _, remedy = said.partition(": " if "\n" not in said else "\n")
        return failed("configuration", detail, remedy or "name one that can be")
    files = {source for source in patient.loaded.sources.values() if not source.startswith(("--", "ACCORD_"))}
    return ok("configuration", ", ".join(sorted(files)) or "no file of settings")
