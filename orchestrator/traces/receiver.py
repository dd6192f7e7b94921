"""The receiver of traces: an OTLP/HTTP endpoint, such as that of an OpenTelemetry Collector.

It is configured by the variables of OpenTelemetry:

    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT                     the whole URL
    OTEL_EXPORTER_OTLP_ENDPOINT                            the URL without /v1/traces; http://localhost:4318
    OTEL_EXPORTER_OTLP_TRACES_HEADERS, ..._OTLP_HEADERS    name=value,name=value, percent-encoded
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES            the resource; the service is `orchestrator`
"""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from orchestrator.application.explain.trace_spans import TraceSpan
from orchestrator.traces.otlp_json import build_request

ENDPOINT = "http://localhost:4318"
TRACES_PATH = "/v1/traces"
TIMEOUT_S = 10.0
_TRANSIENT = frozenset({401, 403, 404, 408, 429})
"""The 4xx statuses that are about the receiver, not about the spans. They end when it is repaired."""


class BadReceiver(ValueError):
    """The settings of the receiver cannot be used."""


class ReceiverUnavailable(Exception):
    """The receiver has not taken the spans; it may later."""


class SpansRejected(Exception):
    """The receiver will never take these spans."""


@dataclass(frozen=True, slots=True)
class Receiver:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    resource: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], endpoint: str | None = None) -> Receiver:
        """The receiver that the variables of OpenTelemetry describe. `endpoint` replaces its URL without the
        path. Raises BadReceiver."""
        base = endpoint or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or ENDPOINT
        url = None if endpoint else environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        url = url or base.rstrip("/") + TRACES_PATH
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise BadReceiver(f"the endpoint must be a URL with http:// or https://, not {url[:100]!r}")
        own = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
        headers = _read_pairs(own or environment.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
        resource = {
            "service.name": "orchestrator",
            **_read_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", "")),
        }
        if environment.get("OTEL_SERVICE_NAME"):
            resource["service.name"] = environment["OTEL_SERVICE_NAME"]
        return cls(url, headers, resource)

    def send(self, spans: Sequence[TraceSpan]) -> None:
        """Send some spans in one request. Raises ReceiverUnavailable or SpansRejected."""
        body = gzip.compress(json.dumps(build_request(spans, self.resource)).encode(), 5)
        fixed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        request = urllib.request.Request(self.url, body, {**self.headers, **fixed}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                response.read()
        except urllib.error.HTTPError as error:
            error.close()
            if 400 <= error.code < 500 and error.code not in _TRANSIENT:
                raise SpansRejected(f"{self.url} rejects them with status {error.code}") from None
            raise ReceiverUnavailable(f"{self.url} answers with status {error.code}") from None
        except (OSError, ValueError) as error:
            raise ReceiverUnavailable(f"{self.url}: {error}") from None


def _read_pairs(text: str) -> dict[str, str]:
    """name=value,name=value with percent-encoded values; a part without a name is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}
