"""Several hosts: a primary, a replica, three sentinels, coordinators and workers, and links that go down.

Links are cut and delayed. Packet loss is not tested: see servers/hosts.py.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from orchestrator.application.errors import OrchestratorError, RecordNotFound
from orchestrator.application.records.decisions import Complete
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from processes import PatientClient, wait_until
from servers.hosts import HostStack, host_stack
from servers.replicated import Replicated, own_replicated
from system.test_kills import DIAMOND, accepted, expected, nothing_is_left
from torture.proxy import Proxy

KEYS = Keys()
LEASE = {"ORCHESTRATOR_LEASE_S": "4", "ORCHESTRATOR_GRACE_MS": "1000"}
MAX_LAG_S = 2
DELAY_S = 0.3

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(1800)]


@dataclass
class System:
    """A coordinator beside the primary, another one on host "three", workers on "three" and "four"."""

    redis: Replicated
    stacks: dict[str, HostStack]
    contexts: ExitStack
    """Closes the clients."""

    @cached_property
    def client(self) -> PatientClient:
        """An application on a host of its own, which follows the sentinels."""
        return PatientClient(self.contexts.enter_context(connect(self.redis.url)))

    @cached_property
    def client_beside_the_primary(self) -> PatientClient:
        """An application on the host of the first primary. It talks to that server, whatever happens."""
        return PatientClient(self.contexts.enter_context(connect(self.redis.primary.url)))

    def log(self) -> str:
        return "\n".join(stack.log()[-3000:] for stack in self.stacks.values())

    def is_alive(self) -> bool:
        return all(process.poll() is None for stack in self.stacks.values() for process in stack.processes)


@pytest.fixture
def system() -> Iterator[System]:
    with tempfile.TemporaryDirectory(prefix="h") as name, ExitStack() as contexts:
        folder = Path(name)
        redis = contexts.enter_context(own_replicated(folder, "four"))
        stacks = {
            host: contexts.enter_context(
                host_stack(redis.network[host], redis.url, folder / f"logs-{host}", **LEASE)
            )
            for host in ("one", "three", "four")
        }
        stacks["one"].coordinator()
        stacks["three"].coordinator()
        stacks["three"].worker()
        stacks["four"].worker("default", "--concurrency", "4")
        with redis.primary.client() as client:
            wait_until(lambda: client.zcard(KEYS.coordinators) == 2, what="two coordinators")
            wait_until(lambda: client.scard("rq:workers") == 2, what="two workers")
        yield System(redis, stacks, contexts)


def start(client: PatientClient, ids: Iterable[str], timeout_s: float = 180.0) -> list[str]:
    """Start diamonds one by one, and return the ids of those that were acknowledged."""
    acknowledged = []
    for number, execution_id in enumerate(ids):
        with suppress(OrchestratorError):
            acknowledged.append(client.start(DIAMOND, {"n": number}, execution_id, timeout_s).execution_id)
    return acknowledged


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def assert_complete(system: System, redis: RedisClient, ids: list[str]) -> None:
    """All of them end with the right output, and each step was accepted once."""
    client = system.client
    for number, execution_id in enumerate(ids):
        assert client.wait(execution_id, 180) == Complete(expected(number)), system.log()
        full = client.store.full_id(execution_id)
        assert accepted(redis, full) == {"a": 1, "b": 1, "c": 1, "d": 1}


def assert_whole(system: System, redis: RedisClient) -> None:
    wait_until(lambda: nothing_is_left(redis), what=system.log())
    assert [str(one.finding) for one in Verifier(redis, KEYS).verify_all().found] == []
    assert system.is_alive(), system.log()


def is_known(client: PatientClient, execution_id: str) -> bool:
    try:
        client.record(execution_id)
    except RecordNotFound:
        return False
    return True


def test_a_failover_keeps_what_the_replica_had_and_loses_what_only_the_cut_off_primary_acknowledged(
    system: System,
) -> None:
    kept = start(system.client, names("kept", 10))
    system.redis.wait_for_the_replica()

    system.redis.network.cut("one")
    lost = start(system.client_beside_the_primary, names("lost", 3))
    system.redis.fail_over()
    meanwhile = start(system.client, names("meanwhile", 5))
    system.redis.network.heal("one")
    system.redis.wait_until_joined()
    afterwards = start(system.client, names("afterwards", 5))

    assert [len(ids) for ids in (kept, lost, meanwhile, afterwards)] == [10, 3, 5, 5], system.log()
    with connect(system.redis.url) as redis:
        for ids in (kept, meanwhile, afterwards):
            assert_complete(system, redis, ids)
        assert [is_known(system.client, execution_id) for execution_id in lost] == [False] * 3
        assert_whole(system, redis)


def test_with_min_replicas_to_write_a_cut_off_primary_acknowledges_nothing_that_a_failover_loses(
    system: System,
) -> None:
    system.redis.configure(min_replicas_to_write=1, min_replicas_max_lag=MAX_LAG_S)
    kept = start(system.client, names("kept", 10))
    system.redis.wait_for_the_replica()

    system.redis.network.cut("one")
    wait_until(system.redis.refuses_writes, what="the primary to miss its replica")
    refused = names("refused", 3)
    acknowledged = start(system.client_beside_the_primary, refused, 1.0)
    system.redis.fail_over()
    system.redis.network.heal("one")
    system.redis.wait_until_joined()
    afterwards = start(system.client, names("afterwards", 5))

    assert (len(kept), acknowledged, len(afterwards)) == (10, [], 5), system.log()
    with connect(system.redis.url) as redis:
        assert_complete(system, redis, kept)
        assert_complete(system, redis, afterwards)
        assert not any(is_known(system.client, execution_id) for execution_id in refused)
        assert_whole(system, redis)


def test_a_cut_off_replica_stops_writes_with_min_replicas_to_write_and_all_go_on_when_it_is_back(
    system: System,
) -> None:
    system.redis.configure(min_replicas_to_write=1, min_replicas_max_lag=MAX_LAG_S)
    before = start(system.client, names("before", 5))

    system.redis.network.cut("two")
    wait_until(system.redis.refuses_writes, what="the primary to miss its replica")
    refused = start(system.client, names("refused", 2), 1.0)
    system.redis.network.heal("two")
    wait_until(lambda: not system.redis.refuses_writes(), what="the replica to be back")
    after = start(system.client, names("after", 5))

    assert (len(before), refused, len(after)) == (5, [], 5), system.log()
    with connect(system.redis.url) as redis:
        assert_complete(system, redis, before)
        assert_complete(system, redis, after)
        assert_whole(system, redis)


@pytest.mark.parametrize("host", ["three", "four"])
def test_a_host_that_is_cut_off_under_load_comes_back_and_each_step_counts_once(
    system: System, host: str
) -> None:
    sent = names("load", 40)
    system.client.start_many([DIAMOND] * len(sent), [{"n": n} for n in range(len(sent))], sent)
    with connect(system.redis.primary.url) as redis:
        wait_until(lambda: redis.zcard(KEYS.index("complete")) > 2, what=system.log())

        system.redis.network.cut(host)
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == len(sent), what=system.log())
        system.redis.network.heal(host)
        afterwards = start(system.client, names("afterwards", 5))

        assert_complete(system, redis, sent)
        assert_complete(system, redis, afterwards)
        assert_whole(system, redis)


def test_a_worker_and_a_coordinator_behind_a_slow_link_count_like_any_other() -> None:
    """Every message between their host and Redis takes longer, both ways, and then no longer."""
    with tempfile.TemporaryDirectory(prefix="h") as name, ExitStack() as contexts:
        folder = Path(name)
        replicated = contexts.enter_context(own_replicated(folder, "four"))
        network = replicated.network
        proxy = contexts.enter_context(
            Proxy(replicated.primary.socket, random.Random(1), address=network.address)
        )
        line = proxy.line("four")
        slow = contexts.enter_context(host_stack(network["four"], line.url, folder / "slow", **LEASE))
        near = contexts.enter_context(host_stack(network["three"], replicated.url, folder / "near", **LEASE))
        system = System(replicated, {"slow": slow, "near": near}, contexts)
        line.slow(DELAY_S, 3600)
        slow.coordinator()
        slow.worker("default", "--concurrency", "4")
        redis = contexts.enter_context(connect(replicated.primary.url))
        wait_until(lambda: redis.zcard(KEYS.coordinators) == 1, what=system.log())
        wait_until(lambda: redis.scard("rq:workers") == 1, what=system.log())

        alone = start(system.client, names("alone", 5))
        assert_complete(system, redis, alone)
        near.coordinator()
        near.worker()
        together = start(system.client, names("together", 20))
        assert_complete(system, redis, together)
        delayed = proxy.faults["message delayed"]
        line.heal()
        healed = start(system.client, names("healed", 5))

        assert_complete(system, redis, healed)
        assert_whole(system, redis)
        assert delayed > len(alone)
        assert redis.hget(KEYS.counters, "lost") is None
