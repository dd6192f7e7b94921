"""What must be true when all is over: the invariants.

I1  every accepted start has ended
I2  each step was accepted once, from the dispatch that was out; no execution began twice (ledger.py)
I3  no step began before those it waits for had ended, nor before its time
I4  results are those of a run without faults
I5  nothing is pending, leased or timed any more
I6  nothing is queued, failed or held, in RQ or under a key
I7  the dead letters are the poison that was sent; no key had more holders than its limit (ledger.py)
I8  histories are legal, and a verification finds nothing
I9  all of that soon after the last end (simulation.py)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any

from language.laws import check_ended, check_sums, essence, owner_of
from language.memory_play import OrderlyPlay
from language.play import SCOPES
from language.random_specs import quiet_case
from orchestrator.application.audit.history import audit
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_STEP_STATUSES
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.verify.verifier import Verifier
from simulation.ledger import UNHEARD, Broken
from simulation.world import LAST_ID, LAST_POISON, World
from worlds.documents import Json

HIDDEN = ("run_id", "lost", "declined", "dispatches")
"""What grows when a worker is lost, or lacks an executor."""
GIVEN_UP = "workers lost with this attempt"
COUNTS_RUNS = "ctx.step.run_id"


@lru_cache(maxsize=256)
def model(seed: int) -> Json:
    """How a quiet case ends when nothing goes wrong, in one process and in order."""
    return OrderlyPlay(quiet_case(seed), Random(seed)).play()


def left_over(world: World) -> Iterator[str]:
    """What is still there that should not be when everything has ended."""
    ask, keys = world.server.execute, world.keys
    for stream in world.streams():
        if world.unread(stream) or world.pending(stream):
            yield f"I5: {stream} has events that are not acknowledged"
    if found := ask("HGETALL", keys.held_queues):
        yield f"I5: starts are held: {found}"
    for name, key in (("timers", keys.timers), ("leases", keys.leases)):
        if found := ask("ZRANGE", key, "0", "-1", "WITHSCORES"):
            yield f"I5: {name} are left: {found}"
    for queue in world.queues:
        if found := ask("LRANGE", Keys.rq_queue(queue), "0", "-1"):
            revoked = [token for token in found if ask("EXISTS", Keys.rq_job(token))]
            if revoked:
                yield f"I6: jobs are left on {queue}: {revoked}"
        if found := ask("ZRANGE", Keys.rq_failed(queue), "0", "-1"):
            yield f"I6: RQ calls jobs of {queue} failed: {found}"
    found = ask("SCAN", "0", "MATCH", f"{keys.prefix}:concurrency:*", "COUNT", "100000")[1]
    if found:
        yield f"I6: places are left: {found}"
    if found := ask("SMEMBERS", keys.partial):
        yield f"I6: executions are listed as written in part: {found}"
    if found := ask("HGETALL", keys.groups):
        yield f"I6: groups are left: {found}"


def judge(world: World) -> None:
    records = {record.execution_id: record for record in world.loaded()}
    histories = {name: world.store.history(record.workflow_execution_id) for name, record in records.items()}
    check_ended(records, histories)
    owners = sorted({(scope, owner_of(one, scope)) for one in records.values() for scope in SCOPES})
    shared = dict(zip(owners, world.store.load_values(owners), strict=True))
    check_sums(list(records.values()), histories, shared)
    for name, record in records.items():
        found = audit(record, histories[name])
        if found:
            raise Broken(f"I8: the history of {name} is not legal: {found}")
        _check_order(record, histories[name])
    _check_letters(world)
    report = Verifier(world.client, world.keys).verify_all()
    if report.unrepaired or report.busy:
        raise Broken(f"I8: a verification finds {report.unrepaired}, {report.busy}")
    if world.case.is_quiet:
        values = {":".join(owner): values for owner, values in shared.items()}
        _compare(world, records, values, _has_lost(records.values(), histories.values()))


# ---- I3


def _check_order(record: WorkflowRecord, history: Sequence[Json]) -> None:
    at: dict[str, str] = {}
    joins = {spec.id: spec.join for spec in record.spec.steps}
    for entry in history:
        if "to" not in entry:
            continue
        step_id = entry["step"]
        if entry["to"] == "in_progress" and entry["from"] == "ready" and joins.get(step_id) == "all":
            early = [one for one in record.graph.parents[step_id] if at.get(one) not in FINAL_STEP_STATUSES]
            if early:
                raise Broken(f"I3: {step_id} of {record.execution_id} began before {early} had ended")
        at[step_id] = entry["to"]


# ---- I7


def _check_letters(world: World) -> None:
    """Every poison is dead once, and nothing else is, but for what may be refused."""
    entries = world.server.execute("XRANGE", world.keys.dead_letters, "-", "+")
    letters = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
    dead = Counter(_source(letter) for letter in letters)
    twice = [entry for entry, count in dead.items() if count > 1]
    if twice:
        raise Broken(f"I7: these were refused twice: {twice}")
    alive = [kind for entry, kind in world.memory.poison.items() if entry not in dead]
    if alive:
        raise Broken(f"I7: poison was swallowed: {alive}")
    for letter in letters:
        if _source(letter) not in world.memory.poison and not _may_be_refused(world, letter):
            raise Broken(f"I7: refused was {letter}")


def _source(letter: Json) -> str:
    entry = LAST_ID if LAST_POISON in letter["event"] else letter["entry"]
    return f"{letter['stream']} {entry}"


def _may_be_refused(world: World, letter: Json) -> bool:
    """A second start under a taken id; what an operator asks for too late; and, when Redis has forgotten an
    execution, what is still said to it."""
    event = json.loads(letter["event"])
    if letter["stream"] == world.keys.starts:
        return event.get("conflict_policy") == "fail" and "already" in letter["reason"]
    if event["type"] == "control":
        return not world.case.is_quiet
    return world.roll_backs > 0 and event.get("type") in (
        "result",
        "started",
        "lost",
        "declined",
        "available",
    )


# ---- I4


def _compare(world: World, records: dict[str, WorkflowRecord], shared: Json, has_lost: bool) -> None:
    wanted = model(world.case.seed)
    lost, declined = world.server.execute("HMGET", world.keys.counters, "lost", "declined")
    if lost and (COUNTS_RUNS in json.dumps(world.case.documents()) or has_lost):
        return  # that a run was repeated is to be seen, and was
    if (lost or declined) and (_is_cut_short(records) or _is_cut_short_in(wanted)):
        return
    found = {name: essence(record) for name, record in sorted(records.items())}
    # A customer sends an early signal again after a reset of the step, because the reset may have used it up.
    ignored = {UNHEARD, *(wait.signal for wait in world.case.waits.values() if wait.is_early)}
    has_forgotten = False
    for name in sorted({*found, *wanted["records"]}):
        one, other = _visible(found.get(name)), _visible(wanted["records"].get(name))
        if one is not None:
            one["signals"] = [signal for signal in one["signals"] if signal["name"] not in ignored]
        if one is not None and other is not None and _is_part(one["signals"], other["signals"]):
            other["signals"] = one["signals"]  # a signal that no step waits for may arrive after the end
        if one is None and _is_forgotten_child(world, name):
            has_forgotten = True
        elif one != other:
            raise Broken(f"I4: {name} differs from a run without faults: {_difference(one, other)}")
    if not has_forgotten and shared != wanted["shared"]:
        raise Broken(f"I4: shared values differ: {shared} and {wanted['shared']}")


def _is_forgotten_child(world: World, name: str) -> bool:
    """Whether a missing record is that of a child that Redis has forgotten. Its result can be published
    again, and completes the step of its parent, before the child is created again; then no step waits for
    it, and its start has no effect. The record of the parent is compared as any other."""
    return world.roll_backs > 0 and ":" in name


def _has_lost(records: Iterable[WorkflowRecord], histories: Iterable[Sequence[Json]]) -> bool:
    """Whether a dispatch was given up, or retried, because too many workers in a row were lost: its history
    says so, or its output, if a branch has called that complete."""
    outputs = (unit.output for record in records for _, unit in record.units())
    entries = (entry for history in histories for entry in history)
    return any(GIVEN_UP in repr(one) for said in (entries, outputs) for one in said)


def _is_cut_short(records: dict[str, WorkflowRecord]) -> bool:
    """Whether a map failed before all of its items had ended: which of them had, hangs on whose worker was
    lost or lacked the executor, for another one may go before the item that is dispatched again."""
    items = (item for record in records.values() for item in record.items.values())
    return any(item.reason == "another item of the map failed" for item in items)


def _is_cut_short_in(wanted: Json) -> bool:
    """The same, in a run without faults: with them, all items may have ended before one failed."""
    units = (unit for record in wanted["records"].values() for unit in record["units"].items())
    return any("#" in name and unit["status"] in ("skipped", "cancelled") for name, unit in units)


def _is_part(some: list[Any], more: list[Any]) -> bool:
    return not Counter(map(repr, some)) - Counter(map(repr, more))


def _visible(found: Json | None) -> Any:
    if found is None:
        return None
    units = {
        unit: {key: value for key, value in one.items() if key not in HIDDEN}
        for unit, one in found["units"].items()
    }
    return {**found, "units": units}


def _difference(one: Any, other: Any) -> str:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one} and {other}"
    return "; ".join(
        f"{key}: {_difference(one.get(key), other.get(key))}"
        for key in sorted({*one, *other}, key=str)
        if one.get(key) != other.get(key)
    )
