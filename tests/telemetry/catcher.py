"""A collector of traces and a webhook on loopback: what real processes send there, span by span and post by post."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.serve.running import BOUND_SECONDS


class Caught(NamedTuple):
    """A span as it was sent."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, str | int]


class Catcher:
    """What was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[Caught] = []
        self.hooks: list[dict[str, str]] = []
        self._news = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._news:
            if path == "/v1/traces":
                self.spans += _spans(body)
            else:
                self.hooks.append(headers)
            self._news.notify_all()

    def until(self, is_so: Callable[["Catcher"], bool]) -> None:
        """Wait until what was sent is so."""
        with self._news:
            assert self._news.wait_for(lambda: is_so(self), BOUND_SECONDS), self.spans

    def named(self, name: str, service: str | None = None) -> list[Caught]:
        return [span for span in self.spans if span.name == name and service in (None, span.service)]

    def one(self, name: str, service: str | None = None) -> Caught:
        """Wait for the span of that name, the only one."""
        self.until(lambda found: bool(found.named(name, service)))
        (found,) = self.named(name, service)
        return found

    @property
    def env(self) -> dict[str, str]:
        """What makes a process send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}


@contextmanager
def catching() -> Iterator[Catcher]:
    """Listen while the block runs."""
    catcher = Catcher()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            catcher.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    catcher.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield catcher
    finally:
        server.shutdown()
        thread.join(BOUND_SECONDS)
        server.server_close()


def _spans(body: bytes) -> Iterator[Caught]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        about = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                said = {one.key: one.value.string_value or one.value.int_value for one in span.attributes}
                yield Caught(
                    about["service.name"],
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    said,
                )
