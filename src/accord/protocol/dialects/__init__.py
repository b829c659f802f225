"""The five wire dialects, each a pure codec around the one model.

`base.Dialect` is their interface and `DIALECTS` holds one of each. Siblings do not know each other, except where one is
by definition a variant of another (`relay` of `v03`).
"""

from collections.abc import Mapping

from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.gen import Gen
from accord.protocol.dialects.relay import Relay
from accord.protocol.dialects.v03 import V03, V03Rest
from accord.protocol.dialects.v1 import V1
from accord.protocol.dialects.vault import Vault
from accord.protocol.operations import DialectName

DIALECTS: Mapping[DialectName, Dialect] = {dialect.name: dialect for dialect in (V1(), V03(), Vault(), Gen(), Relay())}
"""The dialect of each name, as JSON-RPC speaks it."""

REST_DIALECTS: Mapping[DialectName, Dialect] = {DialectName.V1: DIALECTS[DialectName.V1], DialectName.V03: V03Rest()}
"""The dialects that have an HTTP+JSON binding, as that binding speaks them."""

__all__ = ["DIALECTS", "REST_DIALECTS", "Dialect"]
