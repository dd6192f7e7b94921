"""Verifier: checks executions, and the keys that belong to their records.

    load records -> run their probes at the same versions -> drop what pending events explain -> do it again

Only a finding of both passes is reported, so that a running system causes no false findings. All probes of a
record are run in one script, at the version that was loaded (query_at_version.lua).
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
from orchestrator.redis_rq.commit_args import Command
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.pending_events import are_pending
from orchestrator.redis_rq.scripts import Call, Script, batches
from orchestrator.redis_rq.store import RedisStore
from orchestrator.redis_rq.verify.probes import Claim, Probe, Probes, RepairableFinding, repairable_finding
from orchestrator.redis_rq.verify.schedule_timers import ScheduleTimers
from orchestrator.settings import RETENTION_MARGIN_S, RETENTION_S

BATCH_SIZE = 100
SCAN_COUNT = 1_000
MAX_TRIES = 10
MAX_COUNTED = 20_000
"""How many open executions one script counts: Redis serves no other client meanwhile."""

OPEN_WORKFLOWS = frozenset(WorkflowStatus) - FINAL_WORKFLOW_STATUSES


@dataclass(frozen=True, slots=True)
class ReportedFinding:
    """A finding about an execution, or about shared data (then `execution` is empty)."""

    execution: str
    finding: Finding
    is_repaired: bool = False


@dataclass(slots=True)
class VerifyReport:
    """The result of a verification.

    `busy` are executions that changed during every try. `has_compared_counts` is False when too many
    executions were open to compare the counters with them.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    found: list[ReportedFinding] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    has_compared_counts: bool = True

    @property
    def executions(self) -> int:
        return sum(self.statuses.values())

    @property
    def to_check_again(self) -> list[ReportedFinding]:
        """What was repaired, and what could not be compared. Any other finding is wrong for a reason that no
        repair removes."""
        return [one for one in self.found if one.is_repaired or one.finding.code == "unreadable"]

    @property
    def unrepaired(self) -> list[ReportedFinding]:
        return [one for one in self.found if not one.is_repaired]


@dataclass(slots=True, eq=False)
class _Case:
    """One execution that is checked.

    `claims` are members of sorted sets that name it; with `is_whole` its record is checked too. `version` and
    `status` are those of the pass that produced `found`. `counted` are the counters that include it as open.
    """

    execution: str
    claims: Sequence[Claim] = ()
    is_whole: bool = True
    version: str = ""
    status: str = ""
    counted: Sequence[tuple[str, str]] = ()
    found: list[RepairableFinding] = field(default_factory=list)


class Verifier:
    """Checks executions, and repairs them with `repairs`; each verification has its own report."""

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
        self._query_at_version = Script(client, "query_at_version")
        self._repair = Script(client, "repair", "grant_slots", "job_lease")
        self._compare_counts_script = Script(client, "compare_counts")
        self._report, self._open = VerifyReport(), Counter[tuple[str, str]]()

    def verify(self, execution_id: str) -> VerifyReport:
        """Verify one execution, by either of its ids; raises RecordNotFound."""
        self._report = VerifyReport()
        with translate_errors():
            weid = self._find(execution_id)
            sets = (self._keys.timers, self._keys.leases)
            claims = [one for key in sets for one in self._claims(key, f"*{_escape_glob(weid)}|*")]
            own = [claim for claim in claims if claim.execution == weid]
            self._verify_cases([_Case(weid, own)])
        return self._report

    def verify_record(self, workflow_execution_id: str, listed: str = "") -> VerifyReport:
        """Verify what must exist for one execution, and not what must not: that would need a search. Nothing
        wrong ends its entry `listed` among what is to be repaired."""
        return self._verify_listed(_Case(workflow_execution_id), listed)

    def verify_member(self, key: str, member: str, listed: str) -> VerifyReport:
        """Verify that a member of a sorted set belongs to the record that it names. Nothing wrong ends its
        entry `listed` among what is to be repaired."""
        owner = _owner(key, member, self._keys)
        with translate_errors():
            claims = [Claim(key, member, owner)] if self._client.type(key) == "zset" else []
        return self._verify_listed(_Case(owner, claims, is_whole=False), listed)

    def _verify_listed(self, case: _Case, listed: str) -> VerifyReport:
        """Verify a case, and remove its entry from the list if nothing is wrong. If the record has changed
        since, the entry stays: that commit may have listed it again."""
        self._report = VerifyReport()
        with translate_errors():
            self._verify_cases([case])
            if listed and not self._report.to_check_again and not self._report.busy:
                end = _script_args([["SREM", self._keys.partial, listed]])
                self._repair(self._repair_keys(case.execution), [case.version, *end])
        return self._report

    def verify_all(self) -> VerifyReport:
        """Verify every execution, and every member that names one, in batches."""
        self._report, self._open = VerifyReport(), Counter()
        keys = self._keys
        with translate_errors():
            records = self._scan(keys.workflow("*"), keys.workflow(""))
            for batch in batches(records, BATCH_SIZE):
                self._verify_cases([_Case(weid) for weid in dict.fromkeys(batch)])
            for claims in batches(self._all_claims(), BATCH_SIZE):
                self._verify_claims(claims)
            self._verify_schedules()
            self._compare_counts()
        return self._report

    def _find(self, execution_id: str) -> str:
        """The full id of an execution. Without a valid pointer all records are searched."""
        weid = execution_id
        if "#" not in execution_id:
            weid = str(self._client.get(self._keys.execution(execution_id)))
        if self._client.exists(self._keys.workflow(weid)):
            return weid
        pattern = self._keys.workflow(f"*#{_escape_glob(execution_id)}")
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
                continue  # not of an execution: ScheduleTimers checks these
            yield Claim(key, member, _owner(key, member, self._keys))

    def _verify_claims(self, claims: Iterable[Claim]) -> None:
        by_execution: dict[str, list[Claim]] = {}
        for claim in claims:
            by_execution.setdefault(claim.execution, []).append(claim)
        self._verify_cases([_Case(weid, found, is_whole=False) for weid, found in by_execution.items()])

    # ---- checking

    def _verify_schedules(self) -> None:
        timers = ScheduleTimers(self._client, self._keys)
        for name, finding in timers.findings().items():
            is_repaired = self._repairs and timers.repair(name)
            self._report.found.append(ReportedFinding("", finding, is_repaired))

    def _verify_cases(self, cases: Sequence[_Case]) -> None:
        """Check executions, check those with findings again, and report the findings of both passes."""
        checked, busy = self._check(cases)
        self._report.busy += busy
        self._report.statuses.update(case.status for case in checked if case.is_whole and case.status)
        self._open.update(one for case in checked if case.is_whole for one in case.counted)
        suspects = self._unexplained(checked)
        before = {case.execution: {one.finding for one in case.found} for case in suspects}
        for case in self._unexplained(self._check(suspects)[0]):
            case.found = [one for one in case.found if one.finding in before[case.execution]]
            self._report_findings(case)

    def _check(self, cases: Sequence[_Case]) -> tuple[list[_Case], list[str]]:
        """Check executions; one that changes meanwhile is checked again, up to MAX_TRIES times. Returns the
        checked cases, and the executions that changed every time."""
        checked, remaining = list[_Case](), list(cases)
        for _ in range(MAX_TRIES):
            if remaining:
                unchanged = self._check_once(remaining)
                checked += unchanged
                remaining = [case for case in remaining if case not in unchanged]
        return checked, [case.execution for case in remaining]

    def _check_once(self, cases: Sequence[_Case]) -> list[_Case]:
        """Check executions in a few round trips; returns those that have not changed meanwhile."""
        records = self._store.load_many([case.execution for case in cases])
        # Read after the records, so that the queue of every dispatch in them is included.
        sequences: dict[str, str] = self._client.hgetall(self._keys.sequences)  # type: ignore[assignment]
        queues = {name: int(last) if last.isdigit() else 0 for name, last in sequences.items()}
        probed = list[tuple[_Case, list[Probe]]]()
        checked = list[_Case]()
        for case, record in zip(cases, records, strict=True):
            if isinstance(record, StoreError) and not isinstance(record, RecordNotFound):
                # The keys of an unreadable record cannot be checked.
                case.status = "unreadable"
                case.found = [repairable_finding("unreadable", "", str(record))] if case.is_whole else []
                checked.append(case)
            else:
                probed.append((case, self._probes_of(case, record, queues)))
        replies = self._query_at_version.run([self._call(case, probes) for case, probes in probed])
        for (case, probes), reply in zip(probed, replies, strict=True):
            if reply is not None:
                values = iter(reply)
                for probe in probes:
                    case.found += probe.evaluate(list(islice(values, len(probe.commands))))
                checked.append(case)
        return checked

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
        commands = [command for probe in probes for command in probe.commands]
        return [self._keys.workflow(case.execution)], [case.version, *_script_args(commands)]

    def _unexplained(self, cases: Iterable[_Case]) -> list[_Case]:
        """The cases with findings that no pending event explains."""
        wrong = [case for case in cases if case.found]
        predicates = [
            one.explained_by for case in wrong for one in case.found if one.explained_by is not None
        ]
        if predicates:
            pending = iter(are_pending(self._client, self._keys, predicates))
            for case in wrong:
                case.found = [one for one in case.found if one.explained_by is None or not next(pending)]
        return [case for case in wrong if case.found]

    # ---- reporting

    def _report_findings(self, case: _Case) -> None:
        is_repaired = self._repairs and self._repair_case(case)
        for one in case.found:
            reported = ReportedFinding(case.execution, one.finding, is_repaired and bool(one.repairs))
            self._report.found.append(reported)

    def _repair_case(self, case: _Case) -> bool:
        """Run the repairs of a case; False when the record has changed since it was checked."""
        repairs = [repair for one in case.found for repair in one.repairs]
        args = [case.version, *_script_args(repairs)]
        return bool(repairs) and bool(self._repair(self._repair_keys(case.execution), args))

    def _repair_keys(self, execution: str) -> list[str]:
        return [self._keys.workflow(execution), self._keys.slots]

    def _compare_counts(self) -> None:
        """Compare the counters of open executions, per group and per spec, with the executions. Executions
        start and end meanwhile, so only a script in Redis can compare exactly. It runs for counters that
        differ from what was seen."""
        keys = self._keys
        specs = list(self._scan(keys.spec("*"), keys.spec("")))
        suspects = [
            name
            for name in specs
            if self._read_counter(keys.spec(name), "executions") != self._open["spec", name]
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
        wrong = self._compare_counts_script(
            [keys.groups, *indexes], [keys.workflow(""), keys.spec(""), retention, *suspects]
        )
        for kind, name, counter, actual in zip(*[iter(wrong)] * 4, strict=True):
            where = keys.groups if kind == "group" else keys.spec(name)
            text = f"the counter of {kind} {name} is {counter}, but {actual} of its executions are open"
            self._report.found.append(ReportedFinding("", Finding("count", where, text), self._repairs))

    def _read_counter(self, key: str, counter: str) -> int:
        return int(str(self._client.hget(key, counter) or 0))

    def _scan(self, pattern: str, prefix: str = "") -> Iterator[str]:
        """The keys that match a pattern, without `prefix`."""
        for key in self._client.scan_iter(match=pattern, count=SCAN_COUNT):
            yield str(key).removeprefix(prefix)


def _script_args(commands: Iterable[Command]) -> list[str | int | float]:
    """Commands as arguments of a script: the number of args of each, then its args."""
    return [arg for command in commands for arg in (len(command), *command)]


def _owner(key: str, member: str, keys: Keys) -> str:
    """The execution that a member names; empty when it names none."""
    parts = member.split("|")
    if key == keys.timers:
        return parts[1] if len(parts) == 4 else ""
    if key == keys.leases:
        return parts[0] if len(parts) == 5 else ""
    if key in (keys.ended, keys.leaving):
        return parts[0] if len(parts) > 1 else ""
    if key.startswith((keys.slot_holders(""), keys.slot_waiters(""))):
        return parts[2] if len(parts) == 5 else ""
    return member


def _escape_glob(text: str) -> str:
    return re.sub(r"([*?\[\]\\^])", r"\\\1", text)
