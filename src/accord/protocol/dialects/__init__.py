"""The five wire dialects, each a pure codec around the one model.

`base.Dialect` is their interface and `DIALECTS` holds one of each. Siblings do not know each other, except where one is
by definition a variant of another (`relay` of `v03`).
"""

from collections.abc import Mapping

from accord.model import Request
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.gen import Gen
from accord.protocol.dialects.relay import Relay
from accord.protocol.dialects.v03 import V03, V03Rest
from accord.protocol.dialects.v1 import V1
from accord.protocol.dialects.vault import Vault
from accord.protocol.operations import DialectName, Operation
from accord.protocol.rest_query import typed

DIALECTS: Mapping[DialectName, Dialect] = {dialect.name: dialect for dialect in (V1(), V03(), Vault(), Gen(), Relay())}
"""The dialect of each name, as JSON-RPC speaks it."""


class V1Rest(V1):
    """A2A 1.0 HTTP+JSON, which has queries besides the JSON of 1.0."""

    def decode_request(self, operation: Operation, params: bytes) -> Request:
        """Read the body, query and path values of an operation, put together as one object."""
        return super().decode_request(operation, typed(operation, params))


REST_DIALECTS: Mapping[DialectName, Dialect] = {DialectName.V1: V1Rest(), DialectName.V03: V03Rest()}
"""The dialects that have an HTTP+JSON binding, as that binding speaks them."""

__all__ = ["DIALECTS", "REST_DIALECTS", "Dialect"]
