"""Trace and span ids: what a traceparent may be, and that ids are derived."""

from __future__ import annotations

import re

import pytest

from orchestrator.application.values.trace_context import (
    TraceContext,
    context_of_attempt,
    context_of_execution,
    parse_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "is_sampled"),
    [
        (GIVEN, True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_a_traceparent_names_a_span(text: str, is_sampled: bool) -> None:
    assert parse_traceparent(text) == TraceContext(TRACE, SPAN, is_sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
    ],
)
def test_other_texts_are_no_traceparents(text: str) -> None:
    assert parse_traceparent(text) is None


def test_ids_are_derived_and_differ() -> None:
    spans = [
        context_of_execution("w#1"),
        context_of_attempt("w#1", "a", 0, 1),
        context_of_attempt("w#1", "a", 0, 2),
        context_of_attempt("w#1", "a", 1, 1),
        context_of_attempt("w#1", "a#0", 0, 1),
    ]

    assert len({one.span_id for one in spans}) == 5
    assert {one.trace_id for one in spans} == {context_of_execution("w#1").trace_id}
    assert context_of_execution("w#2").trace_id != spans[0].trace_id
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", str(spans[1]))
    assert parse_traceparent(str(spans[1])) == spans[1]


def test_the_trace_of_the_start_goes_on() -> None:
    execution = context_of_execution("w#1", f"00-{TRACE}-{SPAN}-00")
    attempt = context_of_attempt("w#1", "a", 0, 1, f"00-{TRACE}-{SPAN}-00")

    assert (execution.trace_id, execution.is_sampled) == (TRACE, False)
    assert execution.span_id == context_of_execution("w#1").span_id != SPAN
    assert (attempt.trace_id, attempt.span_id) == (TRACE, context_of_attempt("w#1", "a", 0, 1).span_id)


def test_the_webhook_belongs_to_the_execution() -> None:
    assert context_of_attempt("w#1", "#webhook", 0, 1) == context_of_execution("w#1")
