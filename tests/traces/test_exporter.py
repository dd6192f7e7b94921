"""The exporter of traces, on a real Redis and a receiver that the test serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.redis_rq.ended_executions import EndedExecutions
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.record_queries import RecordQueries
from orchestrator.redis_rq.store import RedisStore
from orchestrator.traces.exporter import TraceExporter, TraceReader
from orchestrator.traces.otlp_json import build_request
from orchestrator.traces.receiver import BadReceiver, Receiver, ReceiverUnavailable
from servers.guarded_redis import guarded_redis
from serving_otlp import OtlpReceiver, attributes_of, otlp_receiver
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as served:
        yield served


def exporter_of(world: RedisWorld, receiver: OtlpReceiver, **variables: str) -> TraceExporter:
    ends = EndedExecutions(world.client, world.keys)
    reader = TraceReader(world.store, RecordQueries(world.client, world.keys))
    to = Receiver.from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, **variables})
    return TraceExporter(ends, reader, to, lambda seconds: True)


def run(world: RedisWorld, *names: str, **fields: Any) -> None:
    one = world.coordinator("one")
    for name in names:
        world.start(document(step("a"), name="order"), execution_id=name, **fields)
    world.settle(one)


def names(receiver: OtlpReceiver) -> list[str]:
    spans = [span for span in receiver.spans if span.name == "order"]
    return [attributes_of(span)["orchestrator.execution_id"] for span in spans]


def test_what_ended_before_it_was_opened_is_not_listed(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    run(world, "before")
    exporter.ends.open()
    run(world, "after")

    assert exporter.export_batch() == 1
    assert names(receiver) == ["after"]


def test_every_ended_execution_is_exported_once(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, *(f"x{n}" for n in range(120)))

    counts = [exporter.export_batch() for _ in range(4)]

    assert counts == [50, 50, 20, 0]
    assert sorted(names(receiver)) == sorted(f"x{n}" for n in range(120))
    assert exporter.ends.count() == 0
    assert world.client.exists(world.keys.ends)


def test_a_failed_execution_has_the_status_of_an_error(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    one = world.coordinator("one")
    world.start(document(step("a", input={"x": {"+": ["no number", 1]}}), name="order"), execution_id="x")
    world.settle(one)
    exporter.export_batch()
    span = receiver.span("order")

    assert span.status.code == 2
    assert attributes_of(span)["orchestrator.status"] == "failed"


def test_while_the_receiver_is_unavailable_nothing_is_lost(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "x", "y")
    receiver.statuses = [503, 429]

    for _ in range(2):
        with pytest.raises(ReceiverUnavailable):
            exporter.export_batch()
    restarted = exporter_of(world, receiver)

    assert restarted.export_batch() == 2
    assert sorted(names(receiver)) == ["x", "y"]
    assert restarted.ends.count() == 0


def test_an_exporter_that_dies_before_it_has_removed_sends_the_same_spans_again(
    world: RedisWorld, receiver: OtlpReceiver
) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "x")
    [(_, execution)] = exporter.ends.read(1)
    exporter.receiver.send(exporter.reader.read(execution))

    exporter.export_batch()

    first, second = receiver.requests
    assert first.SerializeToString() == second.SerializeToString()


def test_a_rejected_trace_takes_no_other_with_it(
    world: RedisWorld, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "x", "y", "z")
    receiver.statuses = [400, 200, 400]

    assert exporter.export_batch() == 3
    [left_out] = [one.__dict__["trace_id"] for one in caplog.records if "is left out" in one.message]
    assert len(set(names(receiver))) == 2
    assert left_out not in [span.trace_id.hex() for span in receiver.spans]
    assert exporter.ends.count() == 0


def test_an_execution_that_is_gone_or_damaged_blocks_no_other(
    world: RedisWorld, receiver: OtlpReceiver
) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "gone", "damaged", "x")
    for _, execution in exporter.ends.read(3):
        if execution.endswith("#gone"):
            world.client.delete(world.keys.workflow(execution))
        elif execution.endswith("#damaged"):
            world.client.lpush(world.keys.history(execution), "no JSON")

    assert exporter.export_batch() == 3
    assert names(receiver) == ["x"]


def test_a_start_with_a_traceparent_continues_that_trace(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(
        world, receiver, OTEL_SERVICE_NAME="shop", OTEL_EXPORTER_OTLP_HEADERS="api-key=a%20b"
    )
    exporter.ends.open()
    run(world, "x", traceparent=f"00-{TRACE}-{CALLER}-01")
    exporter.export_batch()
    whole, step_span = receiver.span("order"), receiver.span("a")

    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, CALLER)
    assert (step_span.trace_id, step_span.parent_span_id) == (whole.trace_id, whole.span_id)
    assert (step_span.kind, whole.kind) == (5, 1)
    assert step_span.end_time_unix_nano >= step_span.start_time_unix_nano > 10**18
    resource = receiver.requests[0].resource_spans[0].resource
    assert attributes_of(resource)["service.name"] == "shop"
    assert receiver.headers[0]["api-key"] == "a b"


def test_a_trace_that_is_not_sampled_is_not_exported(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "x", traceparent=f"00-{TRACE}-{CALLER}-00")

    assert exporter.export_batch() == 1
    assert receiver.spans == []
    assert exporter.ends.count() == 0


def test_closed_the_stream_gets_nothing(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    exporter.ends.close()
    run(world, "x")

    assert exporter.export_batch() == 0
    assert not world.client.exists(world.keys.ends)


def test_the_loop_opens_the_stream_and_stops_when_it_must(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)

    exporter.run()

    assert world.client.exists(world.keys.ends)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "nothing", "http://"])
def test_an_endpoint_must_be_a_url(url: str) -> None:
    with pytest.raises(BadReceiver, match="http"):
        Receiver.from_environment({}, url)


def test_the_receiver_follows_the_variables_of_opentelemetry() -> None:
    own = Receiver.from_environment({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://h/x"})
    common = Receiver.from_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://h/", "OTEL_RESOURCE_ATTRIBUTES": "a=1,b=%2C,,"}
    )

    assert own.url == "https://h/x"
    assert (common.url, common.resource) == (
        "https://h/v1/traces",
        {"service.name": "orchestrator", "a": "1", "b": ","},
    )
    assert Receiver.from_environment({}).url == "http://localhost:4318/v1/traces"


def test_a_text_that_is_not_unicode_is_replaced(world: RedisWorld, receiver: OtlpReceiver) -> None:
    exporter = exporter_of(world, receiver)
    exporter.ends.open()
    run(world, "x")
    [(_, execution)] = exporter.ends.read(1)
    spans = exporter.reader.read(execution)
    object.__setattr__(spans[0], "error", "half a pair: \ud800")

    assert "half a pair: ?" in json.dumps(build_request(spans, {}))


@pytest.mark.slow
def test_a_reader_may_export_with_two_more_rights_on_one_key(tmp_path: Path, receiver: OtlpReceiver) -> None:
    with guarded_redis(tmp_path) as guarded:
        admin = guarded.client("admin")
        version = str(admin.info("server")["redis_version"])
        if version.startswith("6."):
            pytest.skip("Redis 6.2 has no selectors")
        admin.execute_command("ACL", "SETUSER", "reader", "(+xadd +xdel ~orchestrator:ends)")  # type: ignore[no-untyped-call]
        reader = guarded.client("reader")
        queries = RecordQueries(reader, Keys())
        ends = EndedExecutions(reader, Keys())
        exporter = TraceExporter(
            ends,
            TraceReader(RedisStore(reader, Keys()), queries),
            Receiver(receiver.url),
            lambda seconds: True,
        )
        ends.open()
        admin.xadd(Keys().ends, {"execution": "w#gone"})

        assert exporter.export_batch() == 1
        assert ends.count() == 0
        admin.close()
        reader.close()
