"""The gRPC binding (extra `grpc`): A2A 1.0 and 0.3 on one port.

`server` listens, `calls` answers, and `protocol.protobuf` contains the table of methods.
"""

try:
    from accord.http.grpc.server import GrpcBinding, GrpcTls
except ImportError as error:
    raise ImportError("The gRPC binding needs grpcio and a2a-sdk 1.x: pip install 'accord[grpc]'") from error

__all__ = ["GrpcBinding", "GrpcTls"]
