"""The command `traces`."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import click

from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, connection_options, json_option, pass_target
from orchestrator.cli.output.escaping import print_json

if TYPE_CHECKING:
    from orchestrator.traces.exporter import TraceExporter, TraceReader
    from orchestrator.traces.receiver import Receiver


@click.command()
@click.argument("execution_ids", metavar="[ID]...", nargs=-1)
@click.option(
    "--endpoint",
    metavar="URL",
    help="The OTLP/HTTP receiver, without /v1/traces; else by the variables of OpenTelemetry.",
)
@click.option("--forget", is_flag=True, help="Remove the list of ended executions, and exit.")
@json_option
@log_options("info")
@connection_options
@pass_target
def traces(
    target: Target,
    execution_ids: tuple[str, ...],
    endpoint: str | None,
    forget: bool,
    as_json: bool,
    log: LogOptions,
) -> None:
    """Export the traces of ended executions.

    Without an ID it follows the executions that end from now on, until SIGTERM. While it does not run, Redis
    lists up to about 100,000 of them; --forget ends that. With IDs it exports these, or prints them as
    OTLP/JSON with --json.
    """
    from orchestrator.redis_rq.ended_executions import EndedExecutions
    from orchestrator.traces.receiver import BadReceiver, Receiver
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    try:
        receiver = Receiver.from_environment(settings.environment, endpoint)
    except BadReceiver as error:
        raise click.UsageError(str(error)) from None
    ends = EndedExecutions(client, make_keys(settings))
    if forget:
        ends.close()
    elif execution_ids:
        _export_some(target, execution_ids, receiver, as_json)
    elif as_json:
        raise click.UsageError("--json needs the ID of an execution")
    else:
        _follow(target, log, receiver)


def _export_some(target: Target, execution_ids: tuple[str, ...], receiver: Receiver, as_json: bool) -> None:
    from orchestrator.traces.otlp_json import build_request
    from orchestrator.traces.receiver import ReceiverUnavailable, SpansRejected

    reader, client = _make_reader(target), target.client()
    found = [reader.read(client.record(one).workflow_execution_id) for one in execution_ids]
    if as_json:
        print_json(build_request([span for spans in found for span in spans], receiver.resource), indent=2)
        return
    for execution_id, spans in zip(execution_ids, found, strict=True):
        try:
            if spans:
                receiver.send(spans)
        except (ReceiverUnavailable, SpansRejected) as error:
            raise click.ClickException(str(error)) from None
        click.echo(f"{execution_id}: {len(spans)} spans")


def _follow(target: Target, log: LogOptions, receiver: Receiver) -> None:
    from orchestrator.cli.startup import configure_logging, logger, wait_for_redis

    configure_logging(log, "traces")
    settings, client = target.connect()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if not wait_for_redis(client, settings, stop.wait):
        return
    logger.info("exporting the traces of %r to %s", settings.prefix, receiver.url)
    exporter = _make_exporter(target, receiver, stop)
    exporter.run()
    logger.info("stopped after %d executions", exporter.exported)


def _make_exporter(target: Target, receiver: Receiver, stop: threading.Event) -> TraceExporter:
    from orchestrator.redis_rq.ended_executions import EndedExecutions
    from orchestrator.traces.exporter import TraceExporter
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    ends = EndedExecutions(client, make_keys(settings))
    return TraceExporter(ends, _make_reader(target), receiver, stop.wait)


def _make_reader(target: Target) -> TraceReader:
    from orchestrator.redis_rq.queries.record_queries import RecordQueries
    from orchestrator.redis_rq.store import RedisStore
    from orchestrator.traces.exporter import TraceReader
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    keys = make_keys(settings)
    return TraceReader(RedisStore(client, keys, settings.retention_s), RecordQueries(client, keys))
