"""Why a run was lost: the cause, and what to do about it."""

from __future__ import annotations

import tracemalloc
import zlib
from base64 import b64encode

import pytest

from orchestrator.redis_rq.event_codec import MAX_NAME_LENGTH, read_event
from orchestrator.redis_rq.lost_reasons import MAX_LINE_CHARS, describe_death, describe_rq_failure

TRACEBACK = 'Traceback (most recent call last):\n  File "rq/worker/base.py", line 1546, in perform_job\n'


def rq_error(text: str) -> str:
    """A text as RQ stores it in the result of a failed job."""
    return b64encode(zlib.compress(text.encode())).decode()


@pytest.mark.parametrize(
    ("exit_code", "cause", "remedy"),
    [
        (-9, "(signal 9): it was killed", "ORCHESTRATOR_MAX_MEMORY"),
        (-11, "(signal 11): native code in it crashed", "PYTHONFAULTHANDLER=1"),
        (-6, "(signal 6): native code in it crashed", "PYTHONFAULTHANDLER=1"),
        (-15, "(signal 15): it was told to end", "stop the worker instead"),
        (-40, "(signal 40): ", "the log of its worker"),
        (3, "(exit 3): the step ended it", "must return or raise"),
        (0, "(exit 0): the step ended it", "must return or raise"),
    ],
)
def test_a_dead_process_has_a_cause_and_a_remedy(exit_code: int, cause: str, remedy: str) -> None:
    reason = describe_death("work-horse", exit_code)

    assert reason.startswith(f"its work-horse died {cause}")
    assert remedy in reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{TRACEBACK}rq.exceptions.DeserializationError",
            "its worker cannot read jobs in JSON: start it with rq worker --serializer json (with rq older"
            " than 2.9: --serializer rq.serializers.JSONSerializer)",
        ),
        (
            f"{TRACEBACK}ValueError: Invalid attribute name: orchestrator.worker.harness.run_step\n",
            "its worker cannot import orchestrator.worker.harness: install rq-orchestrator where it runs",
        ),
        (
            f"{TRACEBACK}MemoryError\n",
            "its work-horse ran out of memory: raise ORCHESTRATOR_MAX_MEMORY of its worker, or let the step"
            " use less",
        ),
        (
            "Work-horse terminated unexpectedly; waitpid returned 9 (signal 9); ",
            describe_death("work-horse", -9),
        ),
        (
            "Work-horse terminated unexpectedly; waitpid returned 768; ",
            describe_death("work-horse", 3),
        ),
        (
            "Work-horse terminated unexpectedly; waitpid returned None; ",
            "its job failed in RQ: Work-horse terminated unexpectedly; waitpid returned None;",
        ),
        (
            f"{TRACEBACK}rq.timeouts.JobTimeoutException: Task exceeded maximum timeout value (9 seconds)\n",
            "RQ stopped its job after the timeout of RQ; give the step a longer timeout, or let it do less",
        ),
        (
            f"{TRACEBACK}ValueError: cannot log in with password=hunter2\n",
            "its job failed in RQ: ValueError: cannot log in with password=<redacted>",
        ),
        (f"{TRACEBACK}OSError: a\tb\x1b[31m", "its job failed in RQ: OSError: a b [31m"),
        (
            f"{TRACEBACK}OSError: [Errno 28] No space\n\n",
            "its job failed in RQ: OSError: [Errno 28] No space",
        ),
    ],
)
def test_the_error_that_rq_stored_is_the_reason(text: str, reason: str) -> None:
    assert describe_rq_failure(rq_error(text)) == reason


@pytest.mark.parametrize(
    "stored", ["", "!", "abc", b64encode(b"not compressed").decode(), rq_error(""), rq_error(" \n "), "é"]
)
def test_what_is_not_an_error_of_rq_gives_no_reason(stored: str) -> None:
    assert describe_rq_failure(stored) is None


def test_a_large_error_is_cut_and_never_unpacked_as_a_whole() -> None:
    bomb = rq_error("x" * 10_000_000)

    tracemalloc.start()
    reason = describe_rq_failure(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert reason is not None
    assert len(reason) < MAX_LINE_CHARS + 50 < MAX_NAME_LENGTH
    assert peak < 5_000_000


def test_a_lost_event_has_the_reason_of_rq_or_else_its_own() -> None:
    fields = {"type": "lost", "execution": "w#x", "step": "a", "run_id": "0", "attempt": "1", "token": "t"}
    fields["reason"] = "its work-horse died"
    error = rq_error("rq.exceptions.DeserializationError")

    assert getattr(read_event(fields, False), "reason", None) == "its work-horse died"
    assert getattr(read_event({**fields, "rq_error": "!"}, False), "reason", None) == "its work-horse died"
    reason = getattr(read_event({**fields, "rq_error": error}, False), "reason", "")
    assert "--serializer json" in reason
