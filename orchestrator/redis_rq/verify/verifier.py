"""Verifier: whether executions, and all that lies beside their records, are what they should be.

A record is read first, then everything that it implies in one look at the same version (look.lua). What looks
wrong is compared with the events that are still under way, and looked at once more, before it is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from orchestrator.application.audit.findings import Finding
from orchestrator.application.errors import RecordNotFound, StoreError
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.redis_rq.commit_args import RETENTION_MARGIN_S
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.pending_events import are_pending
from orchestrator.redis_rq.scripts import Call, Script, batches
from orchestrator.redis_rq.store import RETENTION_S, RedisStore
from orchestrator.redis_rq.verify.probes import Claim, Probe, Probes, RepairableFinding, repairable_finding
from orchestrator.redis_rq.verify.schedule_timers import ScheduleTimers

BATCH_SIZE = 100
SCAN_COUNT = 1_000
MAX_TRIES = 10
MAX_COUNTED = 20_000
"""How many open executions are counted in one script: everybody else waits for as long as it runs."""

OPEN_WORKFLOWS = frozenset(WorkflowStatus) - FINAL_WORKFLOW_STATUSES


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """Something wrong with an execution, or with what all of them share (then `execution` is empty)."""

    execution: str
    finding: Finding
    is_repaired: bool = False


@dataclass(slots=True)
class VerifyReport:
    """`busy` are executions that changed faster than they could be looked at; `is_counted`: so few were open
    that they could be counted."""

    statuses: Counter[str] = field(default_factory=Counter)
    found: list[ReportedFinding] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    has_compared_counts: bool = True

    @property
    def executions(self) -> int:
        return sum(self.statuses.values())

    @property
    def left(self) -> list[ReportedFinding]:
        return [one for one in self.found if not one.is_repaired]


@dataclass(slots=True, eq=False)
class _Case:
    """One execution under examination. `claims` are members of sorted sets that stand for it; `is_whole`: its
    record is asked about too. `version` and `status` are those of the look that `found` comes from, and
    `counted` says where it counts as open."""

    execution: str
    claims: Sequence[Claim] = ()
    is_whole: bool = True
    version: str = ""
    status: str = ""
    counted: Sequence[tuple[str, str]] = ()
    found: list[RepairableFinding] = field(default_factory=list)


class Verifier:
    """Examines, and repairs if it is told to; each examination has a report of its own."""

    def __init__(
        self,
        client: Client,
        keys: Keys | None = None,
        retention_s: int = RETENTION_S,
        *,
        repairs: bool = False,
    ) -> None:
        self._client, self._keys, self._retention_s = client, keys or Keys(), retention_s
        self._repairs = repairs
        self._store = RedisStore(client, self._keys, retention_s)
        self._probes = Probes(self._keys)
        self._look, self._repair = Script(client, "look"), Script(client, "repair", "hand_on", "lease_in")
        self._counts = Script(client, "counts")
        self._report, self._open = VerifyReport(), Counter[tuple[str, str]]()

    def verify(self, execution_id: str) -> VerifyReport:
        """One execution, by either of its ids; RecordNotFound if there is none."""
        self._report = VerifyReport()
        with translate_errors():
            weid = self._find(execution_id)
            sets = (self._keys.timers, self._keys.leases)
            claims = [one for key in sets for one in self._claims(key, f"*{_glob(weid)}|*")]
            own = [claim for claim in claims if claim.execution == weid]
            self._examine([_Case(weid, own)])
        return self._report

    def verify_all(self) -> VerifyReport:
        """Every execution, and everything that stands for one, in batches."""
        self._report, self._open = VerifyReport(), Counter()
        keys = self._keys
        with translate_errors():
            records = self._scan(keys.workflow("*"), keys.workflow(""))
            for batch in batches(records, BATCH_SIZE):
                self._examine([_Case(weid) for weid in dict.fromkeys(batch)])
            for claims in batches(self._all_claims(), BATCH_SIZE):
                self._examine_claims(claims)
            self._examine_schedules()
            self._compare_counts()
        return self._report

    def _find(self, execution_id: str) -> str:
        """The full id. An execution that its pointer has lost is looked for among all."""
        weid = execution_id
        if "#" not in execution_id:
            weid = str(self._client.get(self._keys.execution(execution_id)))
        if self._client.exists(self._keys.workflow(weid)):
            return weid
        pattern = self._keys.workflow(f"*#{_glob(execution_id)}")
        for found in self._scan(pattern, self._keys.workflow("")):
            return found
        raise RecordNotFound(execution_id)

    # ---- claims

    def _all_claims(self) -> Iterator[Claim]:
        keys = self._keys
        yield from self._claims(keys.timers)
        yield from self._claims(keys.leases)
        yield from self._claims(keys.ended)
        yield from self._claims(keys.leaving)
        for pattern in ("concurrency:held:*", "concurrency:line:*", "index:*"):
            for key in self._scan(f"{keys.prefix}:{pattern}"):
                yield from self._claims(key)
        for key in self._scan(keys.execution("*")):
            yield Claim(key, "", str(self._client.get(key)))

    def _claims(self, key: str, pattern: str | None = None) -> Iterator[Claim]:
        if self._client.type(key) != "zset":
            return
        for member, _ in self._client.zscan_iter(key, match=pattern, count=SCAN_COUNT):
            if key == self._keys.timers and member.startswith("schedule|"):
                continue  # of no execution: ScheduleTimers asks about those
            yield Claim(key, member, _owner(key, member, self._keys))

    def _examine_claims(self, claims: Iterable[Claim]) -> None:
        by_execution: dict[str, list[Claim]] = {}
        for claim in claims:
            by_execution.setdefault(claim.execution, []).append(claim)
        self._examine([_Case(weid, found, is_whole=False) for weid, found in by_execution.items()])

    # ---- examining

    def _examine_schedules(self) -> None:
        timers = ScheduleTimers(self._client, self._keys)
        for name, finding in timers.findings().items():
            is_repaired = self._repairs and timers.repair(name)
            self._report.found.append(ReportedFinding("", finding, is_repaired))

    def _examine(self, cases: Sequence[_Case]) -> None:
        """Ask, ask once more where something was wrong, and report what was wrong both times."""
        asked, busy = self._ask(cases)
        self._report.busy += busy
        self._report.statuses.update(case.status for case in asked if case.is_whole and case.status)
        self._open.update(one for case in asked if case.is_whole for one in case.counted)
        suspects = self._unexplained(asked)
        before = {case.execution: {one.finding for one in case.found} for case in suspects}
        for case in self._unexplained(self._ask(suspects)[0]):
            case.found = [one for one in case.found if one.finding in before[case.execution]]
            self._conclude(case)

    def _ask(self, cases: Sequence[_Case]) -> tuple[list[_Case], list[str]]:
        """Look at all of them; who changes under our eyes is looked at again, a few times, and then left."""
        asked, left = list[_Case](), list(cases)
        for _ in range(MAX_TRIES):
            if left:
                done = self._look_at(left)
                asked += done
                left = [case for case in left if case not in done]
        return asked, [case.execution for case in left]

    def _look_at(self, cases: Sequence[_Case]) -> list[_Case]:
        """One look at each, in a few round trips; returns those that have not changed in between."""
        records = self._store.load_many([case.execution for case in cases])
        # Read after the records: whatever they have dispatched is in one of these.
        known: dict[str, str] = self._client.hgetall(self._keys.sequences)  # type: ignore[assignment]
        queues = {name: int(last) if last.isdigit() else 0 for name, last in known.items()}
        asked = list[tuple[_Case, list[Probe]]]()
        answered = list[_Case]()
        for case, record in zip(cases, records, strict=True):
            if isinstance(record, StoreError) and not isinstance(record, RecordNotFound):
                # Nothing can be said of what belongs to a record that cannot be read.
                case.status = "unreadable"
                case.found = [repairable_finding("unreadable", "", str(record))] if case.is_whole else []
                answered.append(case)
            else:
                asked.append((case, self._probes_of(case, record, queues)))
        answers = self._look.run([self._call(case, probes) for case, probes in asked])
        for (case, probes), found in zip(asked, answers, strict=True):
            if found is not None:
                rest = iter(found)
                for probe in probes:
                    case.found += probe.evaluate(list(islice(rest, len(probe.commands))))
                answered.append(case)
        return answered

    def _probes_of(
        self, case: _Case, record: WorkflowRecord | StoreError, queues: Mapping[str, int]
    ) -> list[Probe]:
        case.found = []
        if not isinstance(record, WorkflowRecord):
            case.version = case.status = ""
            return self._claim_probes(case, None)
        case.version, case.status = record.version, record.status.value
        case.counted = (
            () if record.is_final else (("spec", record.workflow_id), ("group", record.group or ""))
        )
        own = list(self._probes.of(record, queues)) if case.is_whole else []
        return [*own, *self._claim_probes(case, record)]

    def _claim_probes(self, case: _Case, record: WorkflowRecord | None) -> list[Probe]:
        found = (self._probes.probe_for_claim(claim, record) for claim in case.claims)
        return [probe for probe in found if probe is not None]

    def _call(self, case: _Case, probes: Iterable[Probe]) -> Call:
        words = [word for probe in probes for command in probe.commands for word in (len(command), *command)]
        return [self._keys.workflow(case.execution)], [case.version, *words]

    def _unexplained(self, cases: Iterable[_Case]) -> list[_Case]:
        """Those with something wrong that no event under way will put right."""
        wrong = [case for case in cases if case.found]
        questions = [one.explained_by for case in wrong for one in case.found if one.explained_by is not None]
        if questions:
            answers = iter(are_pending(self._client, self._keys, questions))
            for case in wrong:
                case.found = [one for one in case.found if one.explained_by is None or not next(answers)]
        return [case for case in wrong if case.found]

    # ---- what becomes of it

    def _conclude(self, case: _Case) -> None:
        is_mended = self._repairs and self._put_right(case)
        for one in case.found:
            mended = is_mended and bool(one.repairs)
            self._report.found.append(ReportedFinding(case.execution, one.finding, mended))

    def _put_right(self, case: _Case) -> bool:
        """False when the record has changed since it was looked at."""
        repairs = [repair for one in case.found for repair in one.repairs]
        words = [word for repair in repairs for word in (len(repair), *repair)]
        return bool(repairs) and bool(
            self._repair([self._keys.workflow(case.execution)], [case.version, *words])
        )

    def _compare_counts(self) -> None:
        """How many executions are open is kept for each group and for each spec. While some begin and others
        end, only Redis itself can compare; it is asked about what does not agree with what we have seen."""
        keys = self._keys
        specs = list(self._scan(keys.spec("*"), keys.spec("")))
        suspects = [
            name for name in specs if self._kept(keys.spec(name), "executions") != self._open["spec", name]
        ]
        groups: dict[str, str] = self._client.hgetall(keys.groups)  # type: ignore[assignment]
        seen = {group for kind, group in self._open if kind == "group" and group}
        if not suspects and all(
            int(groups.get(group, 0)) == self._open["group", group] for group in {*groups, *seen}
        ):
            return
        indexes = [keys.index(status) for status in sorted(OPEN_WORKFLOWS)]
        if sum(int(self._client.zcard(index)) for index in indexes) > MAX_COUNTED:
            self._report.has_compared_counts = False
            return
        retention = str(self._retention_s + RETENTION_MARGIN_S) if self._repairs else ""
        wrong = self._counts(
            [keys.groups, *indexes], [keys.workflow(""), keys.spec(""), retention, *suspects]
        )
        for kind, name, kept, counted in zip(*[iter(wrong)] * 4, strict=True):
            where = keys.groups if kind == "group" else keys.spec(name)
            words = f"{kind} {name} has {kept} open executions by its counter, and {counted} by the records"
            self._report.found.append(ReportedFinding("", Finding("count", where, words), self._repairs))

    def _kept(self, key: str, counter: str) -> int:
        return int(str(self._client.hget(key, counter) or 0))

    def _scan(self, pattern: str, prefix: str = "") -> Iterator[str]:
        """The keys of a pattern, without their prefix."""
        for key in self._client.scan_iter(match=pattern, count=SCAN_COUNT):
            yield str(key).removeprefix(prefix)


def _owner(key: str, member: str, keys: Keys) -> str:
    """The execution that a member stands for; empty when it says nothing of the kind."""
    parts = member.split("|")
    if key == keys.timers:
        return parts[1] if len(parts) == 4 else ""
    if key == keys.leases:
        return parts[0] if len(parts) == 5 else ""
    if key in (keys.ended, keys.leaving):
        return parts[0] if len(parts) > 1 else ""
    if key.startswith((keys.places(""), keys.line(""))):
        return parts[2] if len(parts) == 5 else ""
    return member


def _glob(text: str) -> str:
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)
