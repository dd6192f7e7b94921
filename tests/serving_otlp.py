"""A receiver of OTLP/HTTP that a test serves. It reads requests by the official protobuf schema, which
rejects fields that do not exist."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

Span = Any
_IDS = ("traceId", "spanId", "parentSpanId")


class OtlpReceiver:
    """`statuses` are the replies to the next requests; after them, each is accepted."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for of_resource in request.resource_spans
            for scoped in of_resource.scope_spans
            for span in scoped.spans
        ]

    def span(self, name: str) -> Span:
        [found] = [span for span in self.spans if span.name == name]
        return found


def attributes_of(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def parse_request(body: dict[str, Any]) -> Any:
    """A request in JSON as protobuf. In OTLP/JSON the ids are hexadecimal, in the JSON of protobuf base64."""
    return ParseDict(_with_base64(body), ExportTraceServiceRequest())


def _with_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: b64encode(bytes.fromhex(one)).decode() if name in _IDS else _with_base64(one)
        for name, one in value.items()
    }


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            if status == 200:
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                receiver.requests.append(parse_request(json.loads(gzip.decompress(body))))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
