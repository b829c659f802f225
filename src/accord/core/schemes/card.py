"""What the card says about authentication, derived from what is enforced.

Each scheme describes itself; here the descriptions get their names and become alternatives, and none is left out: a
card that asks for nothing says that everybody is let in. Writing it is the composition root's and the dialects' work.
"""

from collections.abc import Iterable

from accord.core.access import Access, Scheme
from accord.model import HttpAuthScheme, Scopes, SecurityRequirement, SecurityScheme

CardSecurity = tuple[dict[str, SecurityScheme], tuple[SecurityRequirement, ...]]


def security_of(access: Access) -> CardSecurity:
    """Return what a server's cards say; one that is open but for its extended card has schemes and requires none."""
    schemes, requirements = card_security(access.schemes)
    return schemes, () if access.is_open else requirements


def card_security(schemes: Iterable[Scheme]) -> CardSecurity:
    """Return a card's `security_schemes` and `security_requirements`: satisfying one of them is enough."""
    found: dict[str, SecurityScheme] = {}
    for scheme in schemes:
        for name, security in (scheme.security or _undescribed(scheme)).items():
            found[_free(name, found)] = security
    return found, tuple(SecurityRequirement(schemes={name: Scopes()}) for name in found)


def _undescribed(scheme: Scheme) -> dict[str, SecurityScheme]:
    """Return what can be said of a scheme by its challenge, which begins with an HTTP authentication scheme."""
    asked = scheme.challenge.partition(" ")[0] or scheme.name
    return {scheme.name: SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme=asked))}


def _free(name: str, taken: dict[str, SecurityScheme]) -> str:
    number = 1
    while (candidate := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return candidate
