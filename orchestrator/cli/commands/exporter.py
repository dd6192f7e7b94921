"""The command `exporter`."""

from __future__ import annotations

import click

from orchestrator.cli.errors import Failure
from orchestrator.cli.log_options import LogOptions, log_options
from orchestrator.cli.options import Target, connection_options, pass_target

MISSING_EXTRA = "the exporter needs one more package: pip install 'rq-orchestrator[metrics]'"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9821,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@log_options("info")
@connection_options
@pass_target
def exporter(target: Target, host: str, port: int, log: LogOptions) -> None:
    """Serve metrics for Prometheus.

    It needs the extra `metrics`: pip install 'rq-orchestrator[metrics]'. It has no users: everything that
    reaches the port can read the names of workflows and queues, and numbers.
    """
    try:
        import prometheus_client  # noqa: F401
    except ModuleNotFoundError:
        raise Failure(f"{MISSING_EXTRA} (missing: prometheus_client)") from None
    from orchestrator.cli.startup import configure_logging
    from orchestrator.cli.web_server import listen, stop_on_signals, url_of
    from orchestrator.metrics.exporter import PATH, Exporter
    from orchestrator.metrics.reader import MetricsReader
    from orchestrator.wiring import make_keys

    settings, client = target.connect()
    configure_logging(log, "exporter")
    with listen(host, port) as listener:
        server = Exporter(listener, MetricsReader(client, make_keys(settings)))
        stop_on_signals(server.stop)
        click.echo(f"The metrics are at {url_of(listener)}{PATH} (Ctrl-C ends it)", err=True)
        server.serve_forever()
