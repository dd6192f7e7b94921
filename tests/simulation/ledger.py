"""The ledger: every change of every record, as it happened, and whether it may have.

What is kept is looked at before and after each script that writes a record. So it does not matter what a
coordinator believed, or whether it lived to see the answer. A ledger survives what Redis forgets: a token
that was ever given out is never given out again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.application.records.status import FINAL_STEP_STATUSES, FINAL_WORKFLOW_STATUSES
from worlds.documents import Json

Fields = Mapping[str, str]
OF_TOKEN = "~"
"""Separates the name of a worker from the token of the dispatch whose result it publishes."""

UNHEARD = "unheard"
"""The name of a signal that no step waits for: it stays with its execution."""


class Broken(BaseException):
    """An invariant is broken. Simulated code must not catch this."""


class Ledger:
    """`on_wait` is told of every step that begins to wait, `on_taken` of every one that a signal completes.
    `status` is that of every execution there is, `reopened` are those that an operator has opened again.
    `woken` are the units whose executor a worker has said to have."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        on_wait: Callable[[str, str, int], None],
        on_taken: Callable[[str, str], None],
        fields_of: Callable[[str], Fields],
    ) -> None:
        self._now_ms, self._latest_ms, self._fields_of = now_ms, 0, fields_of
        self._on_wait, self._on_taken = on_wait, on_taken
        self.status: dict[str, str] = {}
        self.reopened: set[str] = set()
        self.woken: set[tuple[str, str]] = set()
        self._tokens: set[str] = set()
        self._versions: dict[tuple[str, str], int] = {}
        self._held: dict[str, dict[tuple[str, str], int]] = {}

    @property
    def open(self) -> list[str]:
        return [weid for weid, status in self.status.items() if status not in FINAL_WORKFLOW_STATUSES]

    def is_over(self, execution_id: str) -> bool:
        """Whether an execution, by its short id, has ended, or had before an operator opened it again."""
        return any(
            status in FINAL_WORKFLOW_STATUSES or weid in self.reopened
            for weid, status in self.status.items()
            if weid.endswith(f"#{execution_id}")
        )

    def reload(self, records: Mapping[str, Fields]) -> None:
        """Redis has forgotten something: these are the records that it has now."""
        self.status = {weid: fields["status"] for weid, fields in records.items()}
        self._held = {}
        for weid, fields in records.items():
            for name, text in fields.items():
                if name == "slot" or name.startswith("step:"):
                    self._note_place(weid, name, json.loads(text))

    # ---- one change

    def look_at_clock(self) -> None:
        self._latest_ms = max(self._latest_ms, self._now_ms())

    def note(self, weid: str, before: Fields, after: Fields, kept: Sequence[str] = ()) -> None:
        """`kept` are the names of the signals that were kept for it before."""
        self.look_at_clock()
        if not after:
            self.status.pop(weid, None)
            return
        self._check_beginning(weid, before, after)
        self._check_signals(weid, before, after, kept)
        self._check_end(weid, before, after)
        self._check_version(weid, after)
        self.status[weid] = after["status"]
        for name, text in after.items():
            if before.get(name) == text:
                continue
            if name.startswith(("step:", "item:")):
                self._check_unit(weid, name, json.loads(before.get(name, "{}")), json.loads(text))
            if name == "slot" or name.startswith("step:"):
                self._note_place(weid, name, json.loads(text))

    def _check_beginning(self, weid: str, before: Fields, after: Fields) -> None:
        """F6: an execution begins once."""
        if not before:
            self._check_parent(weid, json.loads(after.get("parent", "null")))
        elif before.get("start_event") != after.get("start_event"):
            raise Broken(f"I2: {weid} began again: {before.get('start_event')}, {after.get('start_event')}")

    def _check_signals(self, weid: str, before: Fields, after: Fields, kept: Sequence[str]) -> None:
        """What was said to an execution before it began is with it, and what is said once is there once."""
        has = [one["name"] for one in json.loads(after.get("signals", "[]"))].count(UNHEARD)
        if not before and has != kept.count(UNHEARD):
            raise Broken(f"I2: {kept} were kept for {weid}, and it began with {after.get('signals')}")
        if has > 1:
            raise Broken(f"I2: a signal that was sent once is twice with {weid}")

    def _check_parent(self, weid: str, parent: Json | None) -> None:
        """A child begins when its parent waits for it."""
        if parent is None:
            return
        waiting = self._fields_of(parent["execution"]).get(f"step:{parent['step_id']}", "{}")
        if json.loads(waiting).get("token") != parent["token"]:
            raise Broken(f"I3: {weid} was created, and no parent waits for it")

    def _check_end(self, weid: str, before: Fields, after: Fields) -> None:
        """F5: what has ended stays as it is, unless an operator opens it again."""
        if before.get("status") in FINAL_WORKFLOW_STATUSES and weid not in self.reopened:
            changed = [name for name, text in after.items() if before.get(name) != text]
            raise Broken(f"I2: {weid} had ended {before['status']}, and then changed: {changed}")

    def _check_version(self, weid: str, after: Fields) -> None:
        """F1: a version has one content, even after a rollback of Redis."""
        content = hash(tuple(sorted(after.items())))
        if self._versions.setdefault((weid, after["version"]), content) != content:
            raise Broken(f"I2: {weid} was at version {after['version']} before, and was another")

    # ---- one unit

    def _check_unit(self, weid: str, name: str, before: Json, after: Json) -> None:
        where, token = f"{weid} {name}", before.get("token")
        self._check_acceptance(where, before, after)
        if after.get("token") not in (None, token):
            self._check_dispatch(where, before, after, self._is_woken(weid, name, before))
        is_settled = before.get("status") in FINAL_STEP_STATUSES and before.get("run_id") == after["run_id"]
        if is_settled and not name.startswith("item:"):
            changed = [key for key in ("status", "output", "error") if before.get(key) != after.get(key)]
            if changed:
                raise Broken(f"I2: {where} was settled, and its {changed} changed: {before} -> {after}")
        self._note_signals(weid, name.removeprefix("step:"), before, after)
        self._check_time(where, before, after)

    def _note_signals(self, weid: str, step_id: str, before: Json, after: Json) -> None:
        output = after.get("output")
        has_taken = isinstance(output, dict) and f"n_{step_id}" in output and output != before.get("output")
        # What takes a signal may be reset in the same commit, by a branch of its own.
        was_reset = (
            after.get("round", 0) > before.get("round", 0) and before.get("status") not in FINAL_STEP_STATUSES
        )
        if has_taken or was_reset:
            self._on_taken(weid, step_id)
        is_new = (before.get("status"), before.get("run_id")) != ("waiting", after["run_id"])
        if after["status"] == "waiting" and is_new:
            self._on_wait(weid, step_id, after["run_id"])

    def _check_acceptance(self, where: str, before: Json, after: Json) -> None:
        """F2: a result is accepted from the dispatch that is out, and from no other."""
        worker = after.get("worker")
        if worker is None or worker == before.get("worker") or OF_TOKEN not in worker:
            return
        brought = worker.rpartition(OF_TOKEN)[2]
        if brought != before.get("token"):
            raise Broken(f"I2: {where} took the result of {brought}, and {before.get('token')} was out")

    def _is_woken(self, weid: str, name: str, before: Json) -> bool:
        """Whether a unit waited for its executor, and a worker has it: only this ends a wait early."""
        unit = name.partition(":")[2].replace(":", "#")
        is_declined = before.get("status") == "in_progress" and before.get("declined", 0) > 0
        return is_declined and (weid, unit) in self.woken

    def _check_dispatch(self, where: str, before: Json, after: Json, is_woken: bool) -> None:
        """F3: no token comes twice, whatever Redis has forgotten; nothing is dispatched before its time."""
        if after["token"] in self._tokens:
            raise Broken(f"I2: {where} was dispatched under a token that was used before: {after['token']}")
        self._tokens.add(after["token"])
        for name in ("not_before_ms", "wake_at_ms"):
            due_ms = before.get(name) if before.get("run_id") == after["run_id"] else None
            if due_ms is not None and due_ms > self._latest_ms and not is_woken:
                raise Broken(f"I3: {where} was dispatched {due_ms - self._latest_ms} ms before {name}")

    def _check_time(self, where: str, before: Json, after: Json) -> None:
        """A deadline ends when it is due, and not when an event says so."""
        kind, due_ms = (after.get("error") or {}).get("kind"), before.get("deadline_ms")
        is_over = kind in ("timeout", "signal_timeout") and after.get("error") != before.get("error")
        is_map = before.get("items") is not None  # it has the error of its item, which is looked at by itself
        if is_over and not is_map and (due_ms is None or due_ms > self._latest_ms):
            raise Broken(f"I4: {where} timed out before its deadline: {due_ms}")
        if before.get("status") == "deferred" and after["status"] not in ("deferred", "on_hold", "cancelled"):
            due_ms = before.get("wake_at_ms")
            if due_ms is not None and due_ms > self._latest_ms and after["run_id"] == before["run_id"]:
                raise Broken(f"I3: {where} woke {due_ms - self._latest_ms} ms early")

    # ---- places

    def _note_place(self, weid: str, name: str, said: Any) -> None:
        slot = said if name == "slot" else said.get("slot")
        for holders in self._held.values():
            holders.pop((weid, name), None)
        if slot is None or not slot["is_held"]:
            return
        holders = self._held.setdefault(slot["key"], {})
        holders[weid, name] = slot["limit"]
        if len(holders) > min(holders.values()):
            raise Broken(f"I7: {sorted(holders)} are under the key {slot['key']!r}, of {slot['limit']}")
