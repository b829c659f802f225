"""From settings to the schemes that a server enforces, in the order in which they were given.

What a scheme needs of the store and the network is in `Ports`. A scheme's module is imported when it is used: those
that verify signatures take a tenth of a second to load.
"""

from collections.abc import Sequence

from accord.core.access import Scheme
from accord.core.schemes.ports import Ports
from accord.core.schemes.settings import AnyScheme, ApiKeys, Basic, Header, Hmac, Jwt, Mtls


def build(settings: Sequence[AnyScheme], ports: Ports) -> list[Scheme]:
    """Return the schemes; what cannot work is a ValueError that says why."""
    prefixes = [one.owner_prefix for one in settings if isinstance(one, Jwt)]
    if len(set(prefixes)) < len(prefixes):
        raise ValueError(
            "Two issuers of tokens need different `owner_prefix`es: a subject is unique only to its issuer"
        )
    return [_built(one, ports) for one in settings]


def _built(settings: AnyScheme, ports: Ports) -> Scheme:
    match settings:
        case ApiKeys():
            from accord.core.schemes.apikeys import ApiKeyAccess

            if ports.store is None:
                raise ValueError("API keys need a store")
            return ApiKeyAccess(settings, ports.store, ports.clock)
        case Jwt():
            from accord.core.schemes.jwt import JwtAccess

            return JwtAccess(settings, ports.fetch, now=ports.now, clock=ports.clock)
        case Basic():
            from accord.core.schemes.basic import BasicAccess

            return BasicAccess(settings, ports.clock)
        case Header():
            from accord.core.schemes.header import HeaderAccess

            return HeaderAccess(settings)
        case Hmac():
            from accord.core.schemes.hmac import HmacAccess

            return HmacAccess(settings, ports.now)
        case Mtls():
            from accord.core.schemes.mtls import MtlsAccess

            return MtlsAccess(settings, ports.now)
