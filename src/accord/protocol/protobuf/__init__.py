"""A2A as protobuf, for those who have the extra `grpc`: which messages there are, and their way to JSON and back.

It does not call or answer: gRPC itself is the binding's and the client's. The definitions are a2a-sdk's own.
"""
