"""The one place that makes Redis clients.

A client must never repeat a command on its own: a reply that was lost does not mean that the command
was. So no retries here; whoever sends decides what an unknown result means.
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

from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.redis_rq.sentinels import connect_to_primary, is_sentinel_url, pool_like

SOCKET_TIMEOUT_S = 10.0
BLOCK_MS = 1_000
"""How long a blocking read may wait: well below the socket timeout, or every quiet second is an error."""

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
"""What passes by itself: no server, a full one, one that is loading, has become a replica or keeps forgetting
the scripts that it is sent."""


def connect(url: str, *, decodes: bool = True) -> Client:
    """A client for this URL. Its replies are text, or else bytes."""
    return create_client(url, **{**_options(), "decode_responses": decodes})


def create_client(url: str, **options: Any) -> Client:
    """A client for redis://, rediss:// or unix://, or for the primary that sentinels name."""
    return (
        connect_to_primary(url, **options) if is_sentinel_url(url) else redis.Redis.from_url(url, **options)
    )


_OF_A_POOL = (
    "retry",
    "parser_class",
    "driver_info",
    "maint_notifications",
    "oss_cluster",
    "connection_pool",
    "orig_",
    "himport",
)
"""How the options of a connection begin that its client or its pool has put there for itself: how it tries
again, and on TCP that it listens to announcements of maintenance, which needs another protocol than ours."""


def connect_like(other: Client) -> Client:
    """A client of ours for the server that somebody else's client talks to."""
    pool = other.connection_pool
    kwargs = {
        name: value for name, value in pool.connection_kwargs.items() if not name.startswith(_OF_A_POOL)
    }
    options = {**kwargs, **_options()}
    if not issubclass(pool.connection_class, redis.SSLConnection):
        # It does not introduce itself: redis-py would look into its own files for its version. With TLS the
        # answer to that also reads what the server sends first, which a pool takes for the rest of an answer.
        options["driver_info"] = None
    if isinstance(pool, SentinelConnectionPool):
        return redis.Redis(connection_pool=pool_like(pool, **options))
    return redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **options)
    )


class Packer:
    """Commands as hiredis writes them. redis-py's own looks at every word, for buffers of bytes that we
    never send; a batch of commits has thousands of words."""

    def pack(self, name: str, *words: Any) -> list[bytes]:
        try:
            return [hiredis.pack_command((*name.split(), *words))]
        except TypeError as error:
            raise redis.exceptions.DataError(str(error)) from error


def _options() -> dict[str, Any]:
    return {
        "command_packer": Packer(),
        "protocol": 2,
        "decode_responses": True,
        "encoding_errors": "replace",  # anybody can XADD bytes that are not UTF-8: a reader must survive them
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
    }


@contextmanager
def translate_errors() -> Iterator[None]:
    """Redis being away is Unavailable to the rooms above, which know no Redis."""
    try:
        yield
    except redis.exceptions.AuthenticationError as error:
        raise StoreError(f"Redis does not let us in: {error}") from error  # waiting would not help
    except redis.exceptions.RedisError as error:
        if is_transient(error):
            # Of sentinels that were asked in vain, redis-py shows all that it knows of each.
            raise Unavailable(f"Redis: {str(error).partition(' : <redis')[0]}") from error
        raise


_PASSING = ("OOM ", "READONLY ", "LOADING ", "MISCONF ", "NOREPLICAS ", "MASTERDOWN ", "BUSY ", "UNBLOCKED ")


def is_transient(error: BaseException | None) -> bool:
    """Whether this is about the state that Redis is in, and not about what it was asked."""
    if isinstance(error, UNREACHABLE):
        return True
    if not isinstance(error, redis.exceptions.ResponseError):
        return False
    message = str(error)
    if message.startswith("Error running script"):  # 6.2 wraps what comes from inside of one
        return any(f": -{code}" in message for code in _PASSING)
    return message.startswith(_PASSING)


def check_writable(client: Client, key: str) -> None:
    """Raise Unavailable unless Redis takes writes now: one that is full, or that has become a replica,
    answers whoever only asks. `key` is that of a sorted set; nothing is written."""
    with translate_errors(), suppress(redis.exceptions.NoPermissionError):
        client.zadd(key, {"": 0}, xx=True)


def redis_version(client: Client) -> tuple[int, ...]:
    info: Any = client.info("server")
    return tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])


def clock_ms(client: Client) -> int:
    """The clock that all times of records come from, in ms: that of Redis."""
    with translate_errors():
        return parse_time_ms(client.time())


def parse_time_ms(answer: Any) -> int:
    """What TIME answers, seconds and microseconds, in ms."""
    seconds, micros = answer
    return int(seconds) * 1000 + int(micros) // 1000


def backoff_delays(first_s: float = 0.05, max_s: float = 2.0) -> Iterator[float]:
    """Pauses between tries, doubling up to a longest one."""
    pause = first_s
    while True:
        yield pause
        pause = min(pause * 2, max_s)


def retry_until_available(
    call: Callable[[], T],
    give_up_after_s: float | None = None,
    on_wait: Callable[[Exception], None] = lambda error: None,
) -> T:
    """Call until Redis answers. Only for what may be done twice: an unknown result is tried again."""
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
    """What a pipeline answers. A command that is refused (a key of another type, a right that is missing)
    answers with its error and stops nobody; a Redis that cannot answer now is Unavailable."""
    with translate_errors():
        found: list[Any] = pipe.execute(raise_on_error=False)
    for one in found:
        if isinstance(one, Exception):
            with suppress(redis.exceptions.ResponseError), translate_errors():
                raise one
    return found
