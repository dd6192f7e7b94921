"""URLs that name sentinels: each new connection goes to the primary that they report.

    redis+sentinel://[user:password@]host[:26379][,host[:port]...]/service[/db][?option=value&...]

`rediss+sentinel://` is the same with TLS, to the sentinels too. User, password and options are those of
Redis, as in any redis:// URL. The options sentinel_username and sentinel_password are for the sentinels.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlencode

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

SCHEMES = ("redis+sentinel", "rediss+sentinel")
PORT = 26379
SENTINEL_TIMEOUT_S = 2.0
"""How long to wait for a sentinel before the next one is queried."""

FORM = "redis+sentinel://HOST:26379,HOST:26379/SERVICE/0"


def is_sentinel_url(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES


def connect_to_primary(url: str, **options: Any) -> redis.Redis:
    """A client for the primary that the sentinels of this URL report. `options` override those of the URL."""
    # Not by urlsplit(): that of Python 3.14 rejects an IPv6 address behind another host.
    kind, _, rest = url.partition("://")
    netloc, _, rest = rest.partition("/")
    path, _, query_text = rest.partition("?")
    credentials, _, hosts = netloc.rpartition("@")
    service, _, db = path.strip("/").partition("/")
    if not hosts or not service:
        raise ValueError(f"a sentinel URL has the form {FORM}")
    query = dict(parse_qsl(query_text))
    own = {name: query.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    scheme = kind.partition("+")[0]
    plain = f"{scheme}://{credentials}{'@' if credentials else ''}sentinel/{db}?{urlencode(query)}"
    known: dict[str, Any] = parse_url(plain)  # type: ignore[no-untyped-call]
    for name in ("host", "port", "connection_class"):
        known.pop(name, None)
    tls = {name: value for name, value in known.items() if name.startswith("ssl_")}
    secure = {"ssl": True} if scheme == "rediss" else {}
    manager = Sentinel(  # type: ignore[no-untyped-call]
        [_address(host) for host in hosts.split(",")],
        sentinel_kwargs={
            **{name: value for name, value in own.items() if value is not None},
            **secure,
            **tls,
            "protocol": 2,
            "socket_timeout": SENTINEL_TIMEOUT_S,
            "socket_connect_timeout": SENTINEL_TIMEOUT_S,
            "retry": Retry(NoBackoff(), 0),
        },
    )
    pool = SentinelConnectionPool(service, manager, **{**known, **options}, **secure)  # type: ignore[no-untyped-call]
    return redis.Redis.from_pool(pool)


def pool_like(pool: SentinelConnectionPool, **options: Any) -> SentinelConnectionPool:
    """A new pool for the same service."""
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        pool.service_name, pool.sentinel_manager, connection_class=pool.connection_class, **options
    )


def _address(text: str) -> tuple[str, int]:
    """host, host:port, [::1] or [::1]:port."""
    if text.endswith("]") or ":" not in text:
        return text.strip("[]"), PORT
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"{text!r} is not the address of a sentinel; the form is {FORM}")
    return host.strip("[]"), int(port)
