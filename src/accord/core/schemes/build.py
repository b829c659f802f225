"""From settings to the schemes that a server enforces, in the order in which they were given.

What a scheme needs of the store and the network is in `Ports`. Which schemes there are is `kinds`.
"""

from collections.abc import Sequence

import msgspec

from accord.core.access import Scheme
from accord.core.schemes.kinds import SCHEMES
from accord.core.schemes.ports import Ports
from accord.core.schemes.settings import AnyScheme, Jwt, Plugin


def build(settings: Sequence[AnyScheme], ports: Ports) -> list[Scheme]:
    """Return the schemes; what cannot work is a ValueError that says why."""
    prefixes = [one.owner_prefix for one in settings if isinstance(one, Jwt)]
    if len(set(prefixes)) < len(prefixes):
        raise ValueError(
            "Two issuers of tokens need different `owner_prefix`es: a subject is unique only to its issuer"
        )
    return [_built(one, ports) for one in settings]


def _built(settings: AnyScheme, ports: Ports) -> Scheme:
    if not isinstance(settings, Plugin):
        return SCHEMES.load(str(settings.__struct_config__.tag)).build(settings, ports)
    if settings.name in SCHEMES.ours:
        raise ValueError(f'{settings.name} is no plugin: write `type = "{settings.name}"`')
    kind = SCHEMES.load(settings.name)
    try:
        options = msgspec.convert(settings.options, kind.settings, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"the options of {settings.name}: {error}") from None
    return kind.build(options, ports)
