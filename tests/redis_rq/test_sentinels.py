"""URLs that name sentinels: which sentinels are queried, for what, and with which password."""

from __future__ import annotations

from typing import Any

import pytest
from redis.sentinel import MasterNotFoundError, SentinelConnectionPool, SentinelManagedSSLConnection

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq.connection import Client, connect, connect_like, translate_errors


def sentinels(client: Client) -> list[dict[str, Any]]:
    """How each sentinel of a client is reached."""
    pool = client.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    return [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]


def test_all_sentinels_of_a_url_are_asked_for_its_service() -> None:
    client = connect("redis+sentinel://:s3cret@a:1,b,[::1]:3,[::2]/cell/5?sentinel_password=other")

    asked = [(one["host"], one["port"], one["password"]) for one in sentinels(client)]
    assert asked == [("a", 1, "other"), ("b", 26379, "other"), ("::1", 3, "other"), ("::2", 26379, "other")]
    assert repr(client.connection_pool).endswith("(service=cell(master))>")
    own = client.connection_pool.connection_kwargs
    assert (own["password"], own["db"], own["decode_responses"]) == ("s3cret", 5, True)


def test_without_a_database_it_is_the_first() -> None:
    assert connect("redis+sentinel://a/cell").connection_pool.connection_kwargs.get("db", 0) == 0


def test_sentinels_by_tls_are_asked_by_tls() -> None:
    client = connect("rediss+sentinel://a/cell?ssl_ca_certs=/ca.pem")

    assert client.connection_pool.connection_class is SentinelManagedSSLConnection
    assert client.connection_pool.connection_kwargs["ssl_ca_certs"] == "/ca.pem"
    assert [one["ssl_ca_certs"] for one in sentinels(client)] == ["/ca.pem"]


def test_a_client_like_one_of_sentinels_asks_them_too() -> None:
    client = connect("redis+sentinel://:s3cret@a,b/cell/5", decodes=False)

    like = connect_like(client)

    assert sentinels(like) == sentinels(client)
    assert like.connection_pool is not client.connection_pool
    own = like.connection_pool.connection_kwargs
    assert (own["password"], own["db"], own["decode_responses"]) == ("s3cret", 5, True)


@pytest.mark.parametrize("url", ["redis+sentinel://a", "redis+sentinel:///cell", "redis+sentinel://a:b/cell"])
def test_a_url_without_service_or_sentinel_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="redis\\+sentinel://HOST"):
        connect(url)


def test_sentinels_that_do_not_answer_are_an_outage_in_few_words() -> None:
    client = connect("redis+sentinel://127.0.0.1:1/cell")

    with pytest.raises(Unavailable) as raised, translate_errors():
        client.ping()

    assert str(raised.value) == "Redis: No master found for 'cell'"
    assert isinstance(raised.value.__cause__, MasterNotFoundError)
