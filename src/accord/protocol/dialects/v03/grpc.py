"""A2A 0.3 over gRPC: the JSON of the same protobuf definition that `rest` speaks, but for cards and errors.

Nothing else is here: messages and statuses of gRPC itself are the binding's. A card is 0.3's own with the security
objects that its protobuf definition shares with A2A 1.0; an error's sentence begins with its name, because that is
where 0.3's clients look for it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from accord.errors import AccordError
from accord.model import AgentCard, SecurityRequirement, SecurityScheme
from accord.protocol.dialects.v03.card import write_card
from accord.protocol.dialects.v03.rest import V03Rest, error_name
from accord.protocol.jsonrpc import ErrorObject

Plain = dict[str, Any]


class V03Grpc(V03Rest):
    """A2A 0.3 gRPC."""

    def encode_card(self, card: AgentCard) -> Plain:
        """Write a card as the protobuf JSON of 0.3."""
        plain = write_card(card)
        plain["capabilities"].pop("stateTransitionHistory", None)  # 0.3's JSON has it, its protobuf does not
        schemes: Plain = plain.get("securitySchemes", {})
        plain["securitySchemes"] = {name: _scheme(card.security_schemes[name], schemes[name]) for name in schemes}
        plain["security"] = _security(card.security_requirements)
        for skill, stated in zip(plain["skills"], card.skills, strict=True):
            skill["security"] = _security(stated.security_requirements)
        return plain

    def encode_error(self, error: AccordError, agent: str = "") -> ErrorObject:
        """Write an error, with its name where 0.3 has one."""
        plain, name = super().encode_error(error, agent), error_name(error)
        return plain if name is None else replace(plain, message=f"{name}: {plain.message}")


def _scheme(stated: SecurityScheme, written: Plain) -> Plain:
    """Write a way to authenticate; of the OAuth flows that 0.3 knows, protobuf has room for one."""
    plain: Plain = msgspec.to_builtins(stated)
    if "flows" in written:
        plain["oauth2SecurityScheme"]["flows"] = dict(list(written["flows"].items())[:1])
    return plain


def _security(stated: Iterable[SecurityRequirement]) -> list[Plain]:
    return [msgspec.to_builtins(one) for one in stated]
