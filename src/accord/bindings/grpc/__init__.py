"""The gRPC binding, for those who have the extra `grpc`: A2A 1.0 and 0.3 side by side on one port.

`server` listens, `calls` answers, `messages` and `status` turn the dialects' JSON and our errors into protobuf;
`protocol.protobuf` has the table of what can be called.
"""

try:
    from accord.bindings.grpc.server import Grpc, Tls
except ImportError as error:
    raise ImportError("The gRPC binding needs grpcio and a2a-sdk 1.x: pip install 'accord[grpc]'") from error

__all__ = ["Grpc", "Tls"]
