"""gRPC servers on loopback: what tests serve, how they reach it, and a service that says what it is told to."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

from accord.a2a import A2A, Caller
from accord.http.grpc import GrpcBinding, GrpcTls
from accord.model import Event
from accord.protocol.operations import Operation
from tests.engine.conftest import hosting, postgres

__all__ = ["hosting", "postgres"]

Serving = Callable[..., Coroutine[Any, Any, str]]


class Asked:
    """One thing that the service was asked."""

    def __init__(self, operation: Operation, request: Any, caller: Caller, after: int | None = None) -> None:
        self.operation, self.request, self.caller, self.after = operation, request, caller, after


class Told:
    """A service that answers what it was told to, or refuses, and remembers what it was asked."""

    def __init__(self, result: Any = None, events: tuple[Event, ...] = (), error: Exception | None = None) -> None:
        self.result, self.events, self.error = result, events, error
        self.asked: list[Asked] = []

    def __getattr__(self, name: str) -> Any:
        operation = Operation[name.upper()]
        if operation in (Operation.STREAM, Operation.SUBSCRIBE):
            return lambda request, caller, after=None: self._stream(Asked(operation, request, caller, after))
        return lambda request, caller: self._answer(Asked(operation, request, caller))

    async def _answer(self, asked: Asked) -> Any:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        return self.result

    async def _stream(self, asked: Asked) -> AsyncIterator[Event]:
        self.asked.append(asked)
        for event in self.events:
            yield event
        if self.error is not None:
            raise self.error


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """A function that serves something and returns the address."""
    async with AsyncExitStack() as stack:

        async def serve(service: A2A, *, tls: GrpcTls | None = None, **options: Any) -> str:
            server = GrpcBinding(service, **options)
            port = await server.start("127.0.0.1:0", tls=tls)
            stack.push_async_callback(server.stop, 0)
            return f"127.0.0.1:{port}"

        yield serve


@pytest.fixture
async def dial() -> AsyncIterator[Callable[..., Any]]:
    """A function that opens a channel to an address."""
    async with AsyncExitStack() as stack:

        def channel(address: str, credentials: Any = None, **options: Any) -> Any:
            opened = (
                grpc.aio.secure_channel(address, credentials, **options)
                if credentials
                else grpc.aio.insecure_channel(address, **options)
            )
            stack.push_async_callback(opened.close)
            return opened

        yield channel


STUBS: dict[str, Any] = {"v1": a2a_pb2_grpc.A2AServiceStub, "v03": a2a_v0_3_pb2_grpc.A2AServiceStub}


class Failure:
    """How a call failed: its status, and the details in its trailing metadata by the name of their type."""

    def __init__(self, error: Any) -> None:
        self.code: str = error.code().name
        self.sentence: str = error.details()
        self.metadata: dict[str, Any] = dict(list(error.trailing_metadata()))
        self.details: dict[str, Any] = {}
        if raw := self.metadata.get("grpc-status-details-bin"):
            status = status_pb2.Status.FromString(raw)
            assert (status.code, status.message) == (error.code().value[0], error.details())
            for detail in status.details:
                name = detail.TypeName().rpartition(".")[2]
                self.details[name] = getattr(error_details_pb2, name)()
                assert detail.Unpack(self.details[name])


async def failing(call: Any) -> Failure:
    """Wait for a call that must fail; a stream is read to its end."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await _finish(call)
    return Failure(raised.value)


async def _finish(call: Any) -> None:
    if not hasattr(call, "read"):
        await call
        return
    while await call.read() is not grpc.aio.EOF:
        pass


async def all_of(call: Any) -> list[Any]:
    """Read a stream to its end."""
    return [message async for message in call]
