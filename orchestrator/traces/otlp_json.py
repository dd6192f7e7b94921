"""Spans as a request of OTLP/HTTP with JSON, which every receiver of OTLP must take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.application.explain.trace_spans import TraceEvent, TraceLink, TraceSpan

_INTERNAL, _CONSUMER = 1, 5
_ERROR = 2
_NS_PER_MS = 1_000_000


def build_request(spans: Sequence[TraceSpan], resource: Mapping[str, str]) -> dict[str, Any]:
    """One request with these spans; `resource` describes the system that they come from."""
    scoped = {"scope": {"name": "orchestrator"}, "spans": [_span(span) for span in spans]}
    return {
        "resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scoped]}],
    }


def _span(span: TraceSpan) -> dict[str, Any]:
    context = span.context
    fields: dict[str, Any] = {
        "traceId": context.trace_id,
        "spanId": context.span_id,
        "name": _text(span.name),
        "kind": _CONSUMER if span.is_message else _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.start_ms),
        "endTimeUnixNano": _nanoseconds(max(span.start_ms, span.end_ms)),
        "attributes": _attributes(span.attributes),
        "events": [_event(one) for one in span.events],
        "links": [_link(one) for one in span.links],
        "status": {} if span.error is None else {"code": _ERROR, "message": _text(span.error)},
    }
    return fields if span.parent_id is None else {**fields, "parentSpanId": span.parent_id}


def _event(event: TraceEvent) -> dict[str, Any]:
    attributes = _attributes(event.attributes)
    return {"timeUnixNano": _nanoseconds(event.at_ms), "name": event.name, "attributes": attributes}


def _link(link: TraceLink) -> dict[str, Any]:
    attributes = _attributes({"orchestrator.link": link.reason})
    return {"traceId": link.context.trace_id, "spanId": link.context.span_id, "attributes": attributes}


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    """A value as AnyValue; a whole number is written as text, since JSON has no 64 bits."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": _text(str(value))}


def _nanoseconds(at_ms: int) -> str:
    return str(at_ms * _NS_PER_MS)


def _text(text: str) -> str:
    """A text that UTF-8 can hold: half a surrogate pair is replaced."""
    return text.encode(errors="replace").decode()
