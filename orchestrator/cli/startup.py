"""The startup of coordinators and workers: configure logging, load the executors, wait for Redis."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator.cli.errors import Failure, InvalidRequest
from orchestrator.cli.log_options import LogOptions
from orchestrator.cli.options import add_current_directory, mask_password
from orchestrator.logs import failure_logger, log_to_stderr

if TYPE_CHECKING:
    from orchestrator.redis_rq.connection import Client
    from orchestrator.settings import Settings

logger = logging.getLogger("orchestrator")


NO_EXECUTORS = (
    "this worker has no executors of yours: name their module with --executors MODULE, or in"
    " ORCHESTRATOR_EXECUTORS, or install a package that has them; with --built-in-only the worker serves the"
    " built-in executors alone"
)


def load_executors(settings: Settings, built_in_only: bool = False) -> None:
    """Import the executors once, before any work-horse is forked; the current directory is searched too.
    InvalidRequest if there are none but the built-in ones, unless that is wanted."""
    from orchestrator.invocation.executors import BadExecutors, prepare_built_ins
    from orchestrator.worker import harness

    add_current_directory()
    try:
        executors = harness.load_executors(settings.executors)
        prepare_built_ins()
    except BadExecutors:
        raise
    except Exception as error:  # a module may raise anything while it is imported
        names = ", ".join(settings.executors)
        problem = f"{type(error).__name__}: {error}"
        raise InvalidRequest(f"the executors ({names}) cannot be imported: {problem}") from error
    if not (executors.names or executors.has_catch_all or built_in_only):
        raise InvalidRequest(NO_EXECUTORS)
    logger.info("executors: %s", ", ".join(executors.names) or "only the built-in ones")


def prepare_payloads(settings: Settings) -> None:
    """Load what the payload store needs before any work-horse is forked, so that a missing package is
    reported at startup."""
    from orchestrator.application.errors import StoreError
    from orchestrator.wiring import make_payload_settings

    try:
        make_payload_settings(settings).prepare()
    except StoreError as error:
        raise InvalidRequest(str(error)) from error


def wait_for_redis(client: Client, settings: Settings, wait: Callable[[float], Any]) -> bool:
    """Wait until Redis replies, is new enough and accepts writes.

    `wait` sleeps between two tries; if it returns True, the process is stopping, and so does this: False.
    """
    from redis.exceptions import AuthenticationError

    from orchestrator.application.errors import Unavailable
    from orchestrator.redis_rq.connection import (
        MINIMUM_REDIS,
        backoff_delays,
        check_writable,
        redis_version,
        translate_errors,
    )
    from orchestrator.wiring import make_keys

    address = mask_password(settings.redis_url)
    for tries, delay_s in enumerate(backoff_delays()):
        try:
            with translate_errors():
                version = redis_version(client)
            check_writable(client, make_keys(settings).leases)
            break
        except Unavailable as error:
            if isinstance(error.__cause__, AuthenticationError):
                raise
            if tries == 0:
                logger.warning("cannot use Redis at %s; retrying: %s", address, error)
            if wait(delay_s):
                return False
    if version < MINIMUM_REDIS:
        current, minimum = (".".join(map(str, numbers)) for numbers in (version, MINIMUM_REDIS))
        raise Failure(f"Redis at {address} is version {current}: {minimum} or newer is needed; upgrade it")
    return True


def durability_warnings(client: Client) -> list[str]:
    """List the problems of this Redis' configuration, with advice.

    The list is empty if Redis is unavailable again: the service waits for it anyway.
    """
    from orchestrator.application.errors import Unavailable
    from orchestrator.redis_rq.connection import translate_errors

    try:
        with translate_errors():
            persistence: Any = client.info("persistence")
            memory: Any = client.info("memory")
    except Unavailable:
        return []
    warnings = []
    if not persistence.get("aof_enabled"):
        warnings.append(
            "this Redis has no append-only file, so a crash loses its data;"
            " start it with --appendonly yes (redis.conf: appendonly yes)"
        )
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"this Redis evicts keys when it is full ({policy}), including workflow data;"
            " start it with --maxmemory-policy noeviction (redis.conf: maxmemory-policy noeviction)"
        )
    return warnings


class RepeatedOutageFilter(logging.Filter):
    """Reduces RQ's reports of one Redis outage to a single line.

    RQ logs every failed try to connect, some with a traceback.
    """

    FORGET_AFTER_S = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._last_at = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        from orchestrator.redis_rq.connection import is_transient

        message = record.getMessage()
        cause = record.exc_info[1] if record.exc_info else None
        is_rq_report = "could not connect to Redis" in message or "Redis connection timeout" in message
        if not is_rq_report and not is_transient(cause):
            return True
        is_new = record.created - self._last_at > self.FORGET_AFTER_S
        self._last_at = record.created
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"Redis is unavailable; retrying: {cause or message}", None
        return is_new


def configure_logging(options: LogOptions, process: str, *, has_parent: bool = False) -> None:
    """Log to the standard error; `process` is the name in the log lines. A parent such as `orchestrator run`
    shows failures itself, so at the level `warning` they are not logged."""
    log_to_stderr(options.level, options.format, process)
    if has_parent and options.level == "warning":
        failure_logger.setLevel(logging.ERROR)
    logging.getLogger("rq.worker").addFilter(RepeatedOutageFilter())
