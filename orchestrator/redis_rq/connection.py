"""Creates every Redis client of the project.

A client must never repeat a command on its own: when a reply is lost, the command may have run. So there are
no retries here; the caller decides what to do about an unknown result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import hiredis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from orchestrator.application.errors import AccessDenied, Unavailable
from orchestrator.redis_rq.sentinels import connect_to_primary, is_sentinel_url, pool_like

SOCKET_TIMEOUT_S = 10.0
BLOCK_MS = 1_000
"""How long a blocking read waits. It must be well below the socket timeout, or an idle stream is an error."""

MINIMUM_REDIS = (6, 2)

Client = redis.Redis
T = TypeVar("T")

UNREACHABLE = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.NoScriptError,
)
"""Errors that end without our help: no server, or one that is full, is loading, has become a replica or keeps
losing the scripts that it is sent."""


def connect(url: str, *, decodes: bool = True) -> Client:
    """A client for this URL. Its replies are text if it `decodes`, else bytes."""
    return create_client(url, **{**_options(), "decode_responses": decodes})


def create_client(url: str, **options: Any) -> Client:
    """A client for redis://, rediss:// or unix://, or for the primary that sentinels name."""
    return (
        connect_to_primary(url, **options) if is_sentinel_url(url) else redis.Redis.from_url(url, **options)
    )


_POOL_OPTIONS = (
    "retry",
    "parser_class",
    "driver_info",
    "maint_notifications",
    "oss_cluster",
    "connection_pool",
    "orig_",
    "himport",
)
"""Prefixes of connection options that a client or pool sets for itself: its retries, and on TCP that it
listens for announcements of maintenance, which needs another protocol than ours."""


_NAMELESS: dict[str, Any] = (
    {"driver_info": None} if redis.VERSION >= (7, 2) else {"lib_name": None, "lib_version": None}
)
"""Options of a connection that does not send the name of its library, before and since redis-py 7.2."""


def connect_like(other: Client) -> Client:
    """A client of ours for the server of another client, such as RQ's."""
    pool = other.connection_pool
    kwargs = {
        name: value for name, value in pool.connection_kwargs.items() if not name.startswith(_POOL_OPTIONS)
    }
    options = {**kwargs, **_options()}
    if not issubclass(pool.connection_class, redis.SSLConnection):
        # The connection does not send its library name: redis-py would read its own files for its version.
        # With TLS it must: reading that reply also reads the first bytes of the server, which a pool would
        # otherwise take for unread data.
        options |= _NAMELESS
    if isinstance(pool, SentinelConnectionPool):
        return redis.Redis(connection_pool=pool_like(pool, **options))
    return redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **options)
    )


class Packer:
    """Packs commands with hiredis. redis-py's own packer checks every argument for byte buffers, which we
    never send, and a batch of commits has thousands of arguments."""

    def pack(self, name: str, *args: Any) -> list[bytes]:
        try:
            return [hiredis.pack_command((*name.split(), *args))]
        except TypeError as error:
            raise redis.exceptions.DataError(str(error)) from error


def _options() -> dict[str, Any]:
    return {
        "command_packer": Packer(),
        "protocol": 2,
        "decode_responses": True,
        "encoding_errors": "replace",  # any client can XADD bytes that are not UTF-8
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
    }


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our own errors instead of redis-py's: Unavailable when Redis cannot serve now."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise AccessDenied(f"Redis authentication failed: {error}") from error
    except redis.exceptions.RedisError as error:
        if is_transient(error):
            # When no sentinel replies, redis-py appends a description of each of them.
            raise Unavailable(f"Redis: {str(error).partition(' : <redis')[0]}") from error
        raise


_TRANSIENT = (
    "OOM ",
    "READONLY ",
    "LOADING ",
    "MISCONF ",
    "NOREPLICAS ",
    "MASTERDOWN ",
    "BUSY ",
    "UNBLOCKED ",
    "ERR The stream has exhausted the last possible ID",  # coordinators repair such a stream
)


def is_transient(error: BaseException | None) -> bool:
    """Whether an error is about the state of Redis, and not about the command."""
    if isinstance(error, UNREACHABLE):
        return True
    if not isinstance(error, redis.exceptions.ResponseError):
        return False
    return is_transient_text(str(error))


def is_transient_text(message: str) -> bool:
    """The same, by the text of the reply. Redis 6.2 puts the place in the script before some errors, and
    wraps the error of a script that fails."""
    return message.startswith(_TRANSIENT) or (
        message.startswith(("@", "Error running script"))
        and any(f": -{code}" in message for code in _TRANSIENT)
    )


def check_writable(client: Client, key: str) -> None:
    """Raise Unavailable unless Redis accepts writes now: a full server, or a replica, still serves reads.
    `key` is that of a sorted set; nothing is written."""
    with translate_errors(), suppress(redis.exceptions.NoPermissionError):
        client.zadd(key, {"": 0}, xx=True)


def redis_version(client: Client) -> tuple[int, ...]:
    info: Any = client.info("server")
    return tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])


def clock_ms(client: Client) -> int:
    """The time of Redis in ms: the clock of all times in records."""
    with translate_errors():
        return parse_time_ms(client.time())


def parse_time_ms(reply: Any) -> int:
    """The reply of TIME, seconds and microseconds, in ms."""
    seconds, micros = reply
    return int(seconds) * 1000 + int(micros) // 1000


def backoff_delays(first_s: float = 0.05, max_s: float = 2.0) -> Iterator[float]:
    """Pauses between retries, doubling up to `max_s`."""
    pause = first_s
    while True:
        yield pause
        pause = min(pause * 2, max_s)


def retry_until_available(
    call: Callable[[], T],
    give_up_after_s: float | None = None,
    on_wait: Callable[[Exception], None] = lambda error: None,
) -> T:
    """Call until Redis is available. Only for idempotent calls: a call with an unknown result is repeated."""
    started = time.monotonic()
    for tries, pause in enumerate(backoff_delays()):
        try:
            with translate_errors():
                return call()
        except Unavailable as error:
            if give_up_after_s is not None and time.monotonic() - started + pause > give_up_after_s:
                raise
            if tries == 0:
                on_wait(error)
            time.sleep(pause)
    raise AssertionError("backoff_delays() never ends")


def execute_pipeline(pipe: Any) -> list[Any]:
    """The replies of a pipeline. The reply to a command that failed, because of a key of another type or a
    missing right, is its error; raises Unavailable when Redis cannot serve now."""
    with translate_errors():
        replies: list[Any] = pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception):
            with suppress(redis.exceptions.ResponseError), translate_errors():
                raise reply
    return replies
