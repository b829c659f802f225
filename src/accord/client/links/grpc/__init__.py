"""An agent over gRPC, for those who have the extra `grpc`: A2A 1.0 and 0.3.

`link` makes calls, `status` reads how they fail; `protocol.protobuf` has the messages.
"""

try:
    from accord.client.links.grpc.link import GrpcLink
except ImportError as error:
    raise ImportError("Calling agents over gRPC needs grpcio and a2a-sdk 1.x: pip install 'accord[grpc]'") from error

__all__ = ["GrpcLink"]
