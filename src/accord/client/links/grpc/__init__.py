"""An agent over gRPC, for those who have the extra `grpc`: A2A 1.0 and 0.3.

`link` makes calls, `status` reads how they fail; `protocol.protobuf` has the messages.
"""

from accord.client.links.grpc.link import GrpcLink
