"""Serves the web page from the command line: checks the options, then serves until SIGTERM."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING

import click

from orchestrator.cli.errors import Failure, InvalidRequest
from orchestrator.cli.log_options import LogOptions
from orchestrator.cli.options import Target, check_prefix, check_url, mask_password
from orchestrator.cli.startup import configure_logging

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from orchestrator.settings import Settings
    from orchestrator.web.instance import Instance

MISSING_EXTRA = "the web page needs more packages: pip install 'rq-orchestrator[web]'"
DEFAULT_PORT = 8321


@dataclass(frozen=True, slots=True)
class WebOptions:
    """The options of `orchestrator web`, besides those of the connection and of the log."""

    host: str
    port: int
    token_file: str | None = None
    read_only: bool = False
    allowed_hosts: Sequence[str] = ()
    instances: Sequence[str] = ()
    root_path: str = ""


def serve_web(target: Target, options: WebOptions, log: LogOptions) -> None:
    """Serve the page until a signal ends this process."""
    check_extra()
    from orchestrator.web.server import PageServer

    _check_host(options)
    settings = target.settings()
    configure_logging(log, "web")
    application = _make_application(settings, options)
    with listen(options.host, options.port) as listener:
        server = PageServer(application, options.root_path)
        stop_on_signals(server.stop)
        click.echo(f"The page is at {url_of(listener)}{options.root_path}/ (Ctrl-C ends it)", err=True)
        server.run(listener)
    leave()


def print_new_token() -> None:
    check_extra()
    from orchestrator.web.access.tokens import new_token

    click.echo(new_token())


def check_extra() -> None:
    """Raise Failure unless the packages of the extra `web` are installed."""
    try:
        for name in ("jinja2", "prometheus_client", "starlette", "uvicorn"):
            import_module(name)
    except ModuleNotFoundError as error:
        raise Failure(f"{MISSING_EXTRA} (missing: {error.name})") from None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on a port; port 0 is a free one."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except socket.gaierror as error:
        raise Failure(f"cannot listen on {host}:{port}: {error.strerror}") from None
    except OSError as error:
        raise Failure(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from None


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def stop_on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


def leave() -> None:
    """End this process now: the thread of a request that waits for a coordinator would keep it alive."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        os._exit(0)


def _check_host(options: WebOptions) -> None:
    if options.token_file is None and not _is_loopback(options.host):
        raise InvalidRequest(
            f"{options.host} is not an address of this machine alone: give the page users with"
            " --token-file FILE (docs/web.md), or listen on 127.0.0.1"
        )


def _make_application(settings: Settings, options: WebOptions) -> Starlette:
    from orchestrator.web import app

    instances = list(_make_instances(options.instances, settings))
    try:
        return app(
            settings=None if instances else settings,
            instances=instances,
            tokens=options.token_file,
            read_only=options.read_only,
            allowed_hosts=[*options.allowed_hosts, _name_of(options.host)],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _make_instances(texts: Iterable[str], settings: Settings) -> Iterable[Instance]:
    from orchestrator.web.instance import Instance

    for text in texts:
        name, one = _read_instance(text, settings)
        try:
            yield Instance(name, one)
        except ValueError as error:
            raise click.UsageError(f"--instance: {error}") from None


def _read_instance(text: str, settings: Settings) -> tuple[str, Settings]:
    """Read NAME=URL or NAME=URL,PREFIX. The URL of sentinels has commas too; a prefix has no slash."""
    name, separator, rest = text.partition("=")
    if not (separator and name and rest and "://" not in name):
        raise click.UsageError(
            f"{mask_password(text)!r} is not an instance: write NAME=URL or NAME=URL,PREFIX"
        )
    url, comma, prefix = rest.rpartition(",")
    if not comma or "/" in prefix:
        url, prefix = rest, ""
    check_url(url)
    if prefix:
        check_prefix(prefix)
    return name, replace(settings, redis_url=url, prefix=prefix or settings.prefix)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """An address as the header Host has it."""
    return f"[{host}]" if ":" in host else host
