"""What a service does before it serves: log, load its executors, look at its Redis."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator.cli.errors import Failure, InvalidRequest
from orchestrator.cli.log_options import LogOptions
from orchestrator.cli.options import add_current_directory, mask_password
from orchestrator.logs import log_to_stderr

if TYPE_CHECKING:
    from orchestrator.redis_rq.connection import Client
    from orchestrator.settings import Settings

logger = logging.getLogger("orchestrator")


def load_executors(modules: tuple[str, ...]) -> None:
    """Import the executors once, before any work-horse is forked; modules may lie where we were started."""
    from orchestrator.worker.executors.lookup import BadExecutors, prepare_built_ins
    from orchestrator.worker.harness import EXECUTORS_VARIABLE, executors_from_environment

    add_current_directory()
    if modules:
        os.environ[EXECUTORS_VARIABLE] = ",".join(modules)
    try:
        found = executors_from_environment()
        prepare_built_ins()
    except BadExecutors:
        raise
    except Exception as error:  # whatever a module does when it is imported
        named = os.environ.get(EXECUTORS_VARIABLE, "")
        problem = f"{type(error).__name__}: {error}"
        raise InvalidRequest(f"the executors ({named}) cannot be imported: {problem}") from error
    logger.info("executors: %s", ", ".join(found.names) or "none; name a module with --executors")


def prepare_payloads() -> None:
    """What the payload store needs is loaded before any work-horse is forked, and missed before any runs."""
    from orchestrator.application.errors import StoreError
    from orchestrator.payload_stores import PayloadSettings

    try:
        PayloadSettings.from_environment(os.environ).prepare()
    except StoreError as error:
        raise InvalidRequest(str(error)) from error


def wait_for_redis(client: Client, settings: Settings, wait: Callable[[float], Any]) -> bool:
    """Wait until Redis answers, is new enough and takes writes; False when `wait` was told to stop."""
    from redis.exceptions import AuthenticationError

    from orchestrator.application.errors import Unavailable
    from orchestrator.redis_rq.connection import (
        MINIMUM_REDIS,
        backoff_delays,
        check_writable,
        redis_version,
        translate_errors,
    )

    place = mask_password(settings.redis_url)
    for tries, pause in enumerate(backoff_delays()):
        try:
            with translate_errors():
                version = redis_version(client)
            check_writable(client, settings.keys.leases)
            break
        except Unavailable as error:
            if isinstance(error.__cause__, AuthenticationError):
                raise
            if tries == 0:
                logger.warning("cannot use Redis at %s, waiting for it: %s", place, error)
            if wait(pause):
                return False
    if version < MINIMUM_REDIS:
        have, need = (".".join(map(str, numbers)) for numbers in (version, MINIMUM_REDIS))
        raise Failure(f"Redis at {place} is version {have}: {need} or newer is needed; upgrade it")
    return True


def durability_warnings(client: Client) -> list[str]:
    """What is wrong with the configuration of this Redis, and what to do; nothing, should it have gone again:
    whoever serves waits for it."""
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
            "this Redis has no append-only file: what it holds is lost when it dies;"
            " start it with --appendonly yes (redis.conf: appendonly yes)"
        )
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        warnings.append(
            f"this Redis evicts keys when it is full ({policy}), workflows too;"
            " start it with --maxmemory-policy noeviction (redis.conf: maxmemory-policy noeviction)"
        )
    return warnings


class RepeatedOutageFilter(logging.Filter):
    """RQ reports every try to reach a Redis that is away, some with a traceback: say it once, in one line."""

    FORGET_AFTER_S = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._last = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        from orchestrator.redis_rq.connection import is_transient

        words = record.getMessage()
        cause = record.exc_info[1] if record.exc_info else None
        told = "could not connect to Redis" in words or "Redis connection timeout" in words
        if not told and not is_transient(cause):
            return True
        is_new = record.created - self._last > self.FORGET_AFTER_S
        self._last = record.created
        record.exc_info, record.exc_text = None, None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = f"Redis is away, waiting for it: {cause or words}", None
        return is_new


def configure_logging(options: LogOptions, process: str) -> None:
    """Log to the standard error from now on, under this name."""
    log_to_stderr(options.level, options.format, process)
    logging.getLogger("rq.worker").addFilter(RepeatedOutageFilter())
