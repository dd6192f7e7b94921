"""Traces of real processes: what the receiver gets, the ids in the logs, and the lines that steps print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import StartOptions
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, Stack, stack
from serving_otlp import attributes_of, otlp_receiver
from worlds.waiting import wait_until

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SPEC = {
    "name": "order",
    "steps": [
        {"id": "a", "fn": "prints_and_fails_once", "retry": {"initial_delay_ms": 1}},
        {
            "id": "b",
            "depends_on": ["a"],
            "workflow": {"name": "part", "steps": [{"id": "c", "fn": "prints_and_fails_once", "retry": 1}]},
        },
    ],
}
COUNT = 5


def json_lines(world: Stack) -> list[dict[str, Any]]:
    lines = world.log().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("options", [(), ("--concurrency", "3")])
def test_traces_logs_and_printed_lines_fit_together(
    options: tuple[str, ...], redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    given = StartOptions(traceparent=f"00-{TRACE}-{CALLER}-01")
    with (
        otlp_receiver() as receiver,
        stack(redis_url, "step_functions", tmp_path, ORCHESTRATOR_LOG_FORMAT="json") as world,
    ):
        world.coordinator()
        world.worker("default", *options)
        exporter = world.traces("--endpoint", receiver.url)
        redis = connect(redis_url)
        wait_until(lambda: bool(redis.exists(Keys().ends)))
        first = client.start(SPEC, {}, traceparent=given.traceparent, reply_timeout_s=180)
        output = client.result(first.execution_id, timeout_s=180)
        wait_until(lambda: len(receiver.requests) > 0)
        world.kill(exporter)
        others = [client.start(SPEC, {}, reply_timeout_s=180).execution_id for _ in range(COUNT)]
        for one in others:
            client.wait(one, 180)
        world.traces("--endpoint", receiver.url)
        wait_until(lambda: redis.xlen(Keys().ends) == 0)
        redis.close()
        lines = json_lines(world)

    # the trace of the caller goes on, through the child
    spans = [span for span in receiver.spans if span.trace_id.hex() == TRACE]
    by_id = {span.span_id: span for span in spans}
    whole, part = (next(span for span in spans if span.name == name) for name in ("order", "part"))
    assert whole.parent_span_id.hex() == CALLER
    assert by_id[part.parent_span_id].name == "b"
    attempts = [span for span in spans if span.name == "a"]
    assert {span.span_id: attributes_of(span)["orchestrator.attempt"] for span in attempts}.values()
    failed, succeeded = sorted(
        {span.span_id: span for span in attempts}.values(), key=lambda span: span.start_time_unix_nano
    )
    assert (failed.status.code, failed.status.message) == (2, "not yet")
    assert [link.span_id for link in succeeded.links] == [failed.span_id]
    assert output is not None

    # every other execution has a trace, although the exporter was dead when it ended
    roots = {
        attributes_of(span)["orchestrator.execution_id"] for span in receiver.spans if span.name == "order"
    }
    assert roots == {first.execution_id, *others}

    # the lines of failures name the attempt and its span
    failures = [line for line in lines if line["logger"] == "orchestrator.failures"]
    of_first = [line for line in failures if line.get("trace_id") == TRACE and line["step"] == "a"]
    assert [(line["level"], line["attempt"], line["kind"]) for line in of_first] == [
        ("WARNING", 1, "exception")
    ]
    assert of_first[0]["span_id"] == failed.span_id.hex()
    assert len(failures) == 2 * (COUNT + 1)

    # printed lines are in the step log, and in the output of the worker
    kept = [(line.step, line.attempt, line.text) for line in client.step_log(first.execution_id)]
    assert sorted(kept) == [("a", 1, "attempt 1"), ("a", 2, "attempt 2")]
