"""A2A 0.2 and 0.3: `codec` is JSON-RPC's form, `rest` that of HTTP+JSON, `grpc` of gRPC; the others are their parts.

`members` is `codec` for callers that leave `kind` out. `wire` has the shapes that are read and `reader` takes them into
the model, `writer` has the shapes that are written.
"""

from accord.protocol.dialects.v03.codec import V03
from accord.protocol.dialects.v03.members import V03Members
