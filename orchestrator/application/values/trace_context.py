"""The ids of traces and spans, as in W3C Trace Context. They are derived, so that a worker, a coordinator and
the exporter of traces agree without writing anything.

    trace of an execution    that of the traceparent of its start, or else made from its full id
    span of an execution     made from its full id
    span of an attempt       made from the full id, the unit, the run and the attempt

The work-horse of every step imports this: it must load nothing heavy.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from orchestrator.application.values.unit_id import WEBHOOK_UNIT

TRACEPARENT_RULE = (
    "must be a traceparent of W3C Trace Context, such as"
    " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)
_TRACEPARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?"
)
_MAX_LENGTH = 256
_SAMPLED = 1


class TraceContext(NamedTuple):
    """A span and its trace. `is_sampled`: whether the spans of the trace are kept."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    def __str__(self) -> str:
        """The traceparent of spans below this one."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def parse_traceparent(text: str) -> TraceContext | None:
    """The span that a traceparent names; None if it is not valid. Later versions may have more parts."""
    found = _TRACEPARENT.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None or (found[1] == "00" and found[5] is not None):
        return None
    return TraceContext(found[2], found[3], bool(int(found[4], 16) & _SAMPLED))


@lru_cache(maxsize=1_024)
def context_of_execution(execution: str, traceparent: str | None = None) -> TraceContext:
    """The span of an execution, by its full id. `traceparent` is that of its start."""
    caller = None if traceparent is None else parse_traceparent(traceparent)
    if caller is None:
        return TraceContext(_derive(32, "trace", execution), derive_span_id(execution))
    return TraceContext(caller.trace_id, derive_span_id(execution), caller.is_sampled)


@lru_cache(maxsize=64)
def context_of_attempt(
    execution: str, unit: str, run_id: int, attempt: int, traceparent: str | None = None
) -> TraceContext:
    """The span of an attempt of a unit. `traceparent` is that of the start of the execution. The webhook is
    posted after the end of the execution, when its trace is complete, so it counts for the execution."""
    if unit == WEBHOOK_UNIT:
        return context_of_execution(execution, traceparent)
    trace_id, _, is_sampled = context_of_execution(execution, traceparent)
    return TraceContext(trace_id, derive_span_id(execution, unit, run_id, attempt), is_sampled)


def derive_span_id(*parts: str | int) -> str:
    return _derive(16, "span", *parts)


def _derive(length: int, *parts: str | int) -> str:
    """Hexadecimal digits made from these parts. All zeros, which is not a valid id, is as unlikely as a
    collision."""
    text = "\n".join(map(str, parts))
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:length]
