"""What the card says about authentication, derived from what is enforced.

Each scheme describes itself; here the descriptions get their names and become alternatives. Writing the card is the
composition root's and the dialects' work.
"""

from collections.abc import Iterable

from accord.core.access import Scheme
from accord.model import Scopes, SecurityRequirement, SecurityScheme

CardSecurity = tuple[dict[str, SecurityScheme], tuple[SecurityRequirement, ...]]


def card_security(schemes: Iterable[Scheme]) -> CardSecurity:
    """Return a card's `security_schemes` and `security_requirements`: satisfying one of them is enough."""
    found: dict[str, SecurityScheme] = {}
    for scheme in schemes:
        for name, security in scheme.security.items():
            found[_free(name, found)] = security
    return found, tuple(SecurityRequirement(schemes={name: Scopes()}) for name in found)


def _free(name: str, taken: dict[str, SecurityScheme]) -> str:
    number = 1
    while (candidate := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return candidate
