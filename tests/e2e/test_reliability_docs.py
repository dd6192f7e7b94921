"""docs/reliability.md: every fault that is known has a row, and every test that is named there is one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<fault>[^|]+) \| (?P<what>[^|]+) \| (?P<within>[^|]+) \| (?P<tests>[^|]+) \|$", re.M
)
NAMED = re.compile(r"`(tests/[\w/]+\.py::test_\w+)`")
ROWS = {found["fault"]: found for found in ROW.finditer(PAGE) if "::test_" in found["tests"]}

FAULTS = [
    "the work-horse is killed, by the out-of-memory killer or a crash",
    "the worker is killed, its work-horse lives",
    "worker and work-horse die together, or their host",
    "a job is popped from a worker's only queue, and the worker never hears of it",
    "the same with several queues, where RQ keeps no trace of it",
    "a step ignores its timeout",
    "a step holds the interpreter in C code",
    "Redis is away while a worker beats",
    "Redis is full, read-only, loading, or without a disk when a step ends",
    "a callback for a failed job raises",
    "a callback for a stopped job raises",
    "the hash of a job cannot be read",
    "RQ calls a job failed that has succeeded",
    "a clock is two minutes wrong",
    "the client library repeats a command",
    "the hash of a job is gone: evicted, expired or deleted",
    "a job is twice in its queue",
    "the scheduler of RQ doubles what it delays or repeats",
    "Redis is killed and started again",
    "the work-horse stands still",
    "an `rq worker` leaves with exit code 0 when it fails",
    "a command is carried out and its reply lost",
]
"""What is known to go wrong with RQ, with Redis and between them."""

INJECTED = {
    "coordinators killed at random": "test_two_hundred_workflows_end_whoever_is_killed",
    "a coordinator killed between each two commands": "test_a_coordinator_that_dies_with_any_of_its_messages",
    "work-horse killed": "test_a_killed_work_horse_is_noticed_within_two_seconds",
    "worker killed": "test_of_an_orphan_and_its_successor_one_result_is_taken",
    "worker and work-horse killed": "test_a_lost_worker_host_is_noticed_by_its_lease",
    "Redis killed": "test_a_coordinator_outlives_its_redis",
    "the file cut at every byte": "test_wherever_the_file_is_cut_off_what_is_left_is_whole",
    "a coordinator stopped": "test_what_a_coordinator_sends_after_it_was_given_up_is_refused",
    "a work-horse stopped": "test_a_work_horse_that_stands_still_is_out_of_time_and_comes_too_late",
    "a worker stopped": "test_a_worker_that_stands_still_holds_up_nothing_but_itself",
    "replies dropped": "test_whatever_reply_is_lost_each_step_is_dispatched_once_in_a_run_and_taken_once",
    "pops unheard": "test_a_job_whose_pop_was_not_heard_is_dispatched_again_after_the_grace",
    "events doubled and shuffled": "test_every_event_handled_by_several_and_again_takes_each_step_once",
    "late results": "test_a_result_that_comes_too_late_is_counted_and_changes_nothing",
    "success and failure": "test_of_a_success_and_a_failure_of_one_dispatch_the_first_counts",
    "wrong clocks": "test_a_clock_that_is_wrong_harms_nothing",
    "full, read-only, loading, no disk": "test_after_an_outage_all_go_on_by_themselves",
    "failover": "test_a_failover_loses_the_last_writes_and_nothing_by_halves",
    "a backlog": "test_starts_that_came_before_any_coordinator_are_all_taken",
    "fast producers": "test_fast_producers_are_told_to_wait_and_all_that_they_sent_is_taken",
    "poison": "test_a_malformed_event_is_kept_with_a_reason_and_blocks_no_other",
    "poison that kills": "test_of_three_hundred_events_the_one_that_kills_is_buried_and_no_other",
    "a corrupt record": "test_a_record_that_cannot_be_read_stops_no_other_execution",
    "a corrupt job": "test_a_job_that_rq_cannot_read_does_not_end_our_worker",
    "callbacks": "test_our_worker_calls_nobody_back",
    "cancel in every state": "test_every_control_is_followed_or_refused_in_every_state",
    "pause under load": "test_fifty_fans_are_paused_and_go_on",
    "timers": "test_ten_thousand_timers_and_three_sweepers_and_a_killed_redis_make_each_event_once",
    "upgrade": "test_executions_of_an_older_version_are_completed",
    "flush": "test_a_flushed_redis_is_told_of_loudly_and_served_again",
    "everything at once": "test_nothing_is_lost_and_nothing_counts_twice_whatever_fails",
    "for a long time": "scripts/soak",
}
"""What is done to real processes, and where."""


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_that_is_known_has_a_row(fault: str) -> None:
    assert fault in ROWS
    assert all(ROWS[fault][cell].strip() for cell in ("what", "within"))
    assert NAMED.search(ROWS[fault]["tests"])


@pytest.mark.parametrize("injected", INJECTED)
def test_whatever_is_injected_is_told_of(injected: str) -> None:
    assert INJECTED[injected] in PAGE


@pytest.mark.parametrize("named", sorted(set(NAMED.findall(PAGE))))
def test_every_test_on_the_page_is_one(named: str) -> None:
    """At the top of a file that pytest looks into: whether it can be collected shows when it is run."""
    file, _, name = named.partition("::")

    assert Path(file).name.startswith("test_")
    module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {one.name for one in module.body if isinstance(one, ast.FunctionDef)}


def test_every_script_on_the_page_is_there() -> None:
    for script in re.findall(r"`(scripts/[\w-]+)", PAGE):
        assert (ROOT / script).exists(), script


def test_no_figure_is_missing() -> None:
    assert "@" not in PAGE
    assert "```" not in PAGE, "a block would have to be tested"
