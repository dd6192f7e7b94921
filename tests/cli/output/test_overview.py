"""The output of `show`, `history` and `watch`, as exact text: from records and entries, without Redis."""

from __future__ import annotations

import io
import re
from datetime import datetime
from typing import Any

import pytest

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import Parent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.replay import HOW_TO_KEEP
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import ItemCounts, Slot, StepRecord
from orchestrator.cli.output import history_lines, live, overview, values
from orchestrator.cli.output.console import open_console
from orchestrator.cli.output.step_details import format_details
from orchestrator.cli.output.tables import format_table
from worlds.records import NOW, NOW_MS, record, spec

S = StepStatus
AFTER_MS = NOW_MS + 12_000
NO_ATTEMPTS = f"the history has no inputs and outputs of attempts; {HOW_TO_KEEP}"


def drawn(made: WorkflowRecord, now_ms: int = AFTER_MS) -> list[str]:
    rows, others = overview.step_rows(StatusView(made), now_ms)
    lines = [
        *overview.format_header(made, now_ms),
        *format_table(overview.COLUMNS, rows).splitlines(),
        others,
    ]
    return [line for line in [*lines, *overview.format_result(made)] if line]


def ran(status: StepStatus = S.COMPLETE, took_ms: int = 1_500, **changes: Any) -> StepRecord:
    ended = iso(NOW_MS + took_ms) if status in (S.COMPLETE, S.FAILED) else None
    given: dict[str, Any] = {"dispatches": 1, "started_at": NOW, "ended_at": ended, "worker": "host:7"}
    return StepRecord(status, **(given | changes))


def note(changes: dict[str, Any], status: StepStatus = S.READY, **step: Any) -> str:
    made = record(spec(a=step), a=StepRecord(status, **changes))
    return overview.step_row(StatusView(made), "a", made.steps["a"], AFTER_MS)[-1]


# ---- an execution


def test_an_execution_that_runs_shows_its_steps_and_what_they_wait_for() -> None:
    loaded = spec(
        {"name": "order"},
        check={},
        ship={"depends_on": ["check"], "retry": 3},
        tell={"fn": None, "wait": {"signal": "manager", "timeout": "24h"}},
    )
    loaded_ids = loaded.workflow_id
    made = record(
        loaded,
        _execution_id="order-1",
        check=ran(),
        ship=ran(
            S.RETRY,
            attempt=2,
            run_id=1,
            not_before_ms=AFTER_MS + 12_000,
            error={"type": "ValueError", "message": "no such address\nat all", "kind": "exception"},
        ),
        tell=StepRecord(S.WAITING, deadline_ms=AFTER_MS + 3_600_000),
    )
    made.status, made.group, made.priority = WorkflowStatus.IN_PROGRESS, "march", 2

    assert drawn(made) == [
        "order order-1: in progress for 12.0 s",
        f"  id        {loaded_ids}#order-1",
        "  created   2026-01-01 00:00:00 UTC, 12.0 s ago",
        "  group     march",
        "  priority  2",
        "STEP   STATUS    ATTEMPT  RUN   TOOK  WORKER  NOTE",
        "check  complete        1    0  1.5 s  host:7",
        "ship   retry           2    1         host:7  retry in 12.0 s; ValueError: no such address",
        "tell   waiting                                waits for manager; times out in 1 h 0 m",
    ]


def test_a_cancelled_execution_shows_the_requester_and_its_compensations() -> None:
    loaded = spec(a={"compensate": {"fn": "give_back"}}, b={})
    made = record(loaded, a=ran(), b=StepRecord(S.CANCELLED, reason="workflow cancelled: a duplicate"))
    made.items["a#undo"] = ran(took_ms=20)
    made.status, made.ended_at = WorkflowStatus.CANCELLED, iso(NOW_MS + 65_000)
    made.cancelled = {"at": iso(NOW_MS + 2_000), "by": "ada", "reason": "a duplicate"}
    made.compensated, made.outcome = True, {"n": 1}
    made.parent = Parent("spec#top", "pack", 0, 1, "t", "top")

    assert drawn(made, NOW_MS + 3_600_000 * 30) == [
        "workflow e1: cancelled in 1 m 5 s",
        f"  id           {loaded.workflow_id}#e1",
        "  created      2026-01-01 00:00:00 UTC, 1 d 6 h ago",
        "  ended        2026-01-01 00:01:05 UTC, 1 d 5 h ago",
        "  parent       step pack of spec#top",
        "  cancelled    2026-01-01 00:00:02 UTC, 1 d 5 h ago, by ada: a duplicate",
        "  compensated  all steps",
        "STEP    STATUS     ATTEMPT  RUN   TOOK  WORKER  NOTE",
        "a       complete         1    0  1.5 s  host:7",
        "b       cancelled                               workflow cancelled: a duplicate",
        "a#undo  complete         1    0  20 ms  host:7",
        'outcome: {"n": 1}',
    ]


def test_a_failed_execution_shows_its_error_and_failed_compensations() -> None:
    made = record(spec(a={"compensate": {"fn": "undo"}}), a=ran())
    made.status, made.ended_at, made.compensated = WorkflowStatus.FAILED, iso(NOW_MS + 1), False
    undone = [{"step": "a", "kind": "exception", "message": "closed"}]
    made.error = {"kind": "exception", "type": "OSError", "message": "gone", "compensation_errors": undone}

    assert drawn(made)[-2:] == ["error: OSError: gone", "not compensated: a: closed"]
    assert "  compensated  not all steps" in drawn(made)


def test_a_compensating_execution_shows_its_final_status() -> None:
    made = record(spec(a={}))
    made.status, made.ending = WorkflowStatus.COMPENSATING, {"status": "failed"}

    assert overview.format_title(made, AFTER_MS) == "workflow e1: compensating, then failed for 12.0 s"


def test_a_slot_kept_signals_and_a_timeout_of_the_workflow_are_shown() -> None:
    made = record(spec(a={}))
    made.slot = Slot("shop", 3, "t")
    made.signals, made.deadline_ms = [{"name": "go", "payload": 1}], AFTER_MS + 90_000

    assert overview.format_header(made, AFTER_MS)[3:] == [
        "  timeout  in 1 m 30 s",
        "  slot     waits for one of 3 of shop",
        "  signals  go",
    ]
    made.slot = Slot("shop", 3, "t", is_held=True)
    assert "  slot     holds one of 3 of shop" in overview.format_header(made, AFTER_MS)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [({"team": "a", "env": "prod"}, "team=a, env=prod"), ({}, None), (None, None)],
)
def test_labels_are_shown_where_there_are_any(labels: dict[str, str] | None, shown: str | None) -> None:
    assert overview.format_labels(labels) == shown


# ---- one step in a line


@pytest.mark.parametrize(
    ("step", "changes", "status", "told"),
    [
        ({}, {"not_before_ms": AFTER_MS - 1}, S.RETRY, "retry now"),
        ({"defer_ms": 9}, {"wake_at_ms": AFTER_MS + 5_000}, S.DEFERRED, "resumes in 5.0 s"),
        ({}, {"held": "retry"}, S.ON_HOLD, "held, was retry"),
        ({}, {"slot": Slot("shop", 2, "t")}, S.READY, "waits for a slot of shop (limit 2)"),
        ({}, {"slot": Slot("shop", 2, "t", is_held=True)}, S.IN_PROGRESS, ""),
        ({"loop": {}}, {"iteration": 2}, S.IN_PROGRESS, "iteration 3"),
        ({}, {"lost": 1}, S.IN_PROGRESS, "1 worker lost"),
        ({}, {"lost": 2}, S.IN_PROGRESS, "2 workers lost"),
        ({}, {"reason": "its condition is false"}, S.FILTERED, "its condition is false"),
        ({}, {"reason": "x", "error": {"kind": "lost"}}, S.FAILED, "lost"),
        ({"fn": None, "workflow": "kid"}, {"child": "e1:a:0"}, S.IN_PROGRESS, "child e1:a:0"),
        (
            {"fn": None, "wait": {"any": [{"signal": "yes"}, {"signal": "no"}]}},
            {},
            S.WAITING,
            "waits for yes or no",
        ),
        (
            {"map": {"over": [1]}},
            {"items": ItemCounts(100, next=20, out=4, settled=12, errors=1)},
            S.IN_PROGRESS,
            "12/100 items, 1 failed, 4 in progress",
        ),
    ],
)
def test_a_step_has_notes(
    step: dict[str, Any], changes: dict[str, Any], status: StepStatus, told: str
) -> None:
    assert note(changes, status, **step) == told


def test_a_switch_shows_the_case_that_it_took() -> None:
    loaded = spec(
        a={"fn": None, "switch": {"on": {"var": "input.x"}, "cases": {"big": ["b"]}, "default": []}}, b={}
    )
    made = record(loaded, a=StepRecord(S.COMPLETE, output={"branch": "big"}))

    assert overview.step_row(StatusView(made), "a", made.steps["a"], AFTER_MS)[-1] == "case big"


def test_a_step_in_progress_shows_its_duration_so_far_and_a_waiting_one_shows_none() -> None:
    def duration(step: StepRecord) -> str:
        return overview.format_step_duration(StatusView(record(spec(a={}), a=step)), "a", step, AFTER_MS)

    assert duration(ran(S.IN_PROGRESS)) == "12.0 s"
    assert duration(ran(S.RETRY)) == ""
    assert duration(StepRecord()) == ""


def test_the_time_in_a_queue_does_not_count_as_the_duration_of_a_step() -> None:
    job: dict[str, Any] = {"dispatches": 1, "token": "t", "dispatched_at": NOW}
    made = record(
        spec(a={}, b={}, c={}, d={}),
        a=StepRecord(S.IN_PROGRESS, **job),
        b=StepRecord(S.IN_PROGRESS, **job),
        c=StepRecord(S.CANCELLED, dispatches=1, dispatched_at=NOW, ended_at=iso(NOW_MS + 9_000)),
        d=ran(dispatched_at=iso(NOW_MS - 60_000)),
    )
    view = StatusView(made, {"a"})

    rows = [overview.step_row(view, unit, step, AFTER_MS) for unit, step in made.steps.items()]

    assert [(status, took) for _, status, _, _, took, *_ in rows] == [
        ("queued", ""),
        ("in progress", ""),
        ("cancelled", ""),
        ("complete", "1.5 s"),
    ]
    assert live.format_bar(view).endswith("2 of 4 steps, 1 queued, 1 in progress, 1 cancelled")


def test_of_many_steps_the_ready_and_complete_ones_are_hidden() -> None:
    loaded = spec(**{f"s{n:03}": {} for n in range(300)})
    steps: dict[str, Any] = {f"s{n:03}": StepRecord(S.COMPLETE) for n in range(200)}
    made = record(loaded, **{**steps, "s150": StepRecord(S.FAILED), "s299": StepRecord(S.IN_PROGRESS)})

    rows, others = overview.step_rows(StatusView(made), AFTER_MS)

    assert [row[0] for row in rows] == [*(f"s{n:03}" for n in range(48)), "s150", "s299"]
    assert others == "and 250 more: 151 complete, 99 ready; --json shows all"


def test_many_failed_steps_are_limited_too() -> None:
    loaded = spec(**{f"s{n:03}": {} for n in range(900)})
    steps: dict[str, Any] = {f"s{n:03}": StepRecord(S.FAILED) for n in range(900)}
    made = record(loaded, **steps)

    rows, others = overview.step_rows(StatusView(made), AFTER_MS)

    assert (len(rows), others) == (500, "and 400 more: 400 failed; --json shows all")


# ---- everything about one step


def test_the_details_of_a_failed_step() -> None:
    loaded = spec(
        first={},
        a={"depends_on": ["first"], "input": {"n": {"var": "input.n"}}, "max_attempts": 3},
        b={"depends_on": ["a"]},
    )
    error = {
        "kind": "exception",
        "type": "ValueError",
        "message": "one\ntwo",
        "traceback": '  File "mine.py", line 5, in a\n    raise ValueError("one\\ntwo")\n',
    }
    made = record(
        loaded,
        a=ran(
            S.FAILED, attempt=3, run_id=2, dispatches=3, dispatched_at=NOW, output={"ok": False}, error=error
        ),
    )

    assert format_details(StatusView(made), "a", AFTER_MS, None) == [
        "step a of e1: failed",
        "  executor    a",
        "  queue       default, priority 3",
        "  after       first",
        "  before      b",
        "  attempt     3 of 3",
        "  run         2",
        "  dispatches  3",
        "  worker      host:7",
        "  dispatched  2026-01-01 00:00:00 UTC, 12.0 s ago",
        "  started     2026-01-01 00:00:00 UTC, 12.0 s ago",
        "  ended       2026-01-01 00:00:01 UTC, 10.5 s ago",
        "  took        1.5 s",
        "input, as written:",
        "  {",
        '    "n": {',
        '      "var": "input.n"',
        "    }",
        "  }",
        "output:",
        "  {",
        '    "ok": false',
        "  }",
        "error: ValueError: one",
        "  kind  exception",
        "message:",
        "  one",
        "  two",
        "traceback:",
        '    File "mine.py", line 5, in a',
        '      raise ValueError("one\\ntwo")',
        NO_ATTEMPTS,
    ]


def test_the_details_of_a_step_in_progress_have_the_inputs_of_its_job() -> None:
    loaded = spec(
        a={
            "input": {"n": {"var": "input.n"}},
            "concurrency": {"key": "shop", "limit": 2},
            "compensate": {"fn": "undo"},
        }
    )
    step = ran(S.IN_PROGRESS, deadline_ms=AFTER_MS + 60_000, round=1, slot=Slot("shop", 2, "t", is_held=True))
    made = record(loaded, a=step)

    assert format_details(StatusView(made), "a", AFTER_MS, {"n": 7}) == [
        "step a of e1: in progress",
        "  executor      a",
        "  queue         default, priority 3",
        "  attempt       1 of 1",
        "  run           0",
        "  round         1",
        "  dispatches    1",
        "  worker        host:7",
        "  started       2026-01-01 00:00:00 UTC, 12.0 s ago",
        "  took          12.0 s",
        "  timeout       in 1 m 0 s",
        "  slot          holds one of 2 of shop",
        "  compensation  undo",
        "input:",
        "  {",
        '    "n": 7',
        "  }",
    ]


def test_the_details_of_a_map_have_its_items_in_order() -> None:
    made = record(
        spec(a={"map": {"over": list(range(12))}}),
        a=StepRecord(S.IN_PROGRESS, items=ItemCounts(12, next=12, settled=11, errors=1, out=1)),
    )
    made.items = {f"a#{n}": ran(value=n) for n in (10, 11, *range(10))}
    made.items["a#2"] = ran(S.FAILED, error={"type": "E", "message": "two"})
    made.items["a#11"] = StepRecord(S.RETRY, not_before_ms=AFTER_MS + 1_000)

    lines = format_details(StatusView(made), "a", AFTER_MS, None)

    assert "  note      11/12 items, 1 failed, 1 in progress" in lines
    items = lines[lines.index("items:") + 1 :]
    assert items[:4] == [
        "  a#0   complete     1.5 s",
        "  a#1   complete     1.5 s",
        "  a#2   failed       1.5 s; E: two",
        "  a#3   complete     1.5 s",
    ]
    assert items[-1] == "  a#11  retry        retry in 1.0 s"
    one = format_details(StatusView(made), "a#10", AFTER_MS, None)
    assert one[0] == "step a#10 of e1: complete"
    assert one[-3:] == ["item:", "  10", NO_ATTEMPTS]


def test_the_details_of_a_large_map_are_limited() -> None:
    made = record(spec(a={"map": {"over": []}}), a=StepRecord(S.IN_PROGRESS, items=ItemCounts(100)))
    made.items = {f"a#{n}": ran() for n in range(100)}

    assert (
        format_details(StatusView(made), "a", AFTER_MS, None)[-1]
        == "  and 80 more: 80 complete; --json shows all"
    )


def test_the_details_of_a_compensation_have_its_executor() -> None:
    made = record(spec(a={"compensate": {"fn": "give_back", "input": {"n": 1}}}), a=ran())
    made.items["a#undo"] = ran()

    lines = format_details(StatusView(made), "a#undo", AFTER_MS, None)

    assert lines[:2] == ["step a#undo of e1: complete", "  executor    give_back"]
    assert "input, as written:" in lines


def test_the_details_of_a_child_have_its_execution_id() -> None:
    made = record(spec(a={"fn": None, "workflow": "kid"}), a=StepRecord(S.IN_PROGRESS, child="e1:a:0"))

    assert format_details(StatusView(made), "a", AFTER_MS, None) == [
        "step a of e1: in progress",
        "  kind     workflow",
        "  attempt  1 of 1",
        "  run      0",
        "  note     child e1:a:0",
    ]


# ---- values


def test_a_large_value_is_cut_and_its_size_is_named() -> None:
    text = values.format_json_line({"text": "é" * 5_000})

    assert text.startswith('{"text": "éé')
    assert text.endswith(" ... (10,012 bytes in all; --json shows them)")
    assert len(text) < 2_100


def test_a_value_of_many_lines_is_cut_too() -> None:
    lines = values.format_value_lines(list(range(1_000)))

    assert lines[:2] == ["[", "  0,"]
    assert (len(lines), lines[-1]) == (41, "... (6,892 bytes in all; --json shows them)")


def test_a_text_is_shown_as_it_is() -> None:
    assert values.format_value_lines("one\ntwo") == ["one", "two"]
    assert values.format_value_lines("") == [""]


# ---- the history


def entry(**keys: Any) -> dict[str, Any]:
    return {"at": iso(NOW_MS + 1_250), "cause": "1767225601250-0", **keys}


def test_an_entry_is_a_line_with_its_time_and_how_long_after_the_beginning_it_was() -> None:
    moved = entry(step="ship", **{"from": "ready", "to": "in_progress"}, run_id=0, attempt=1)
    lines = history_lines.HistoryFormatter(NOW, ["ship", "a-longer-step"])

    assert [lines.heading, lines.format(moved)] == [
        "TIME (UTC)                    AFTER  STEP           RUN  ATTEMPT  CAUSE              WHAT",
        "2026-01-01 00:00:01.250     +1.250s  ship             0        1  1767225601250-0    dispatched",
    ]


def test_a_step_has_the_entries_of_its_items_too() -> None:
    assert [history_lines.is_about({"step": name}, "a") for name in ("a", "a#0", "a#undo", "ab", "b")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert not history_lines.is_about({"workflow": "failed"}, "a")


def test_a_change_in_a_pipe_is_a_line() -> None:
    began = datetime.fromisoformat(NOW)
    retried = entry(step="a", to="retry", attempt=2, error={"message": "busy"})

    assert history_lines.describe_change(retried, began) == "   1.250 s  a: retry scheduled: busy (attempt 2)"
    assert (
        history_lines.describe_change(entry(workflow="complete"), began)
        == "   1.250 s  workflow: is complete"
    )
    assert (
        history_lines.describe_change(entry(control="pause"), began)
        == "   1.250 s  workflow: pause requested"
    )
    assert history_lines.describe_change(entry(step="a", state_changed=["n"]), began) is None


# ---- live


def frame(made: WorkflowRecord, max_lines: int = 24, width: int = 80) -> list[str]:
    """The lines of a drawing, as plain text."""
    stream = io.StringIO()
    console = open_console(stream)
    console.width = width
    console.print(live.build_frame(StatusView(made), AFTER_MS, max_lines))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_a_frame_has_a_bar_and_a_line_for_each_step() -> None:
    made = record(
        spec(a={}, b={}, c={}, d={}), a=ran(), b=ran(S.FAILED, error={"message": "no"}), c=ran(S.IN_PROGRESS)
    )
    made.status = WorkflowStatus.IN_PROGRESS

    assert frame(made) == [
        "workflow e1: in progress for 12.0 s",
        "████████████░░░░░░░░░░░░ 2 of 4 steps, 1 failed, 1 in progress",
        "STEP  STATUS       ATTEMPT  RUN    TOOK  WORKER  NOTE",
        "a     complete           1    0   1.5 s  host:7",
        "b     failed             1    0   1.5 s  host:7  no",
        "c     in progress        1    0  12.0 s  host:7",
        "d     ready",
    ]


def test_a_frame_fits_the_terminal_and_shows_active_and_failed_steps() -> None:
    loaded = spec(**{f"step-{n:03}": {} for n in range(100)})
    steps: dict[str, Any] = {
        "step-000": ran(),
        "step-077": ran(S.IN_PROGRESS, error={"message": "x" * 200}),
        "step-090": ran(S.FAILED, error={"message": "no"}),
    }
    made = record(loaded, _execution_id="e" * 100, **steps)

    lines = frame(made, max_lines=9, width=60)

    assert len(lines) < 9
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines[3:-1]] == ["step-000", "step-077", "step-090"]
    assert lines[-1] == "and 97 more"


def test_a_workflow_without_steps_has_a_full_bar() -> None:
    assert live.format_bar(StatusView(record(spec()))) == "████████████████████████ 0 of 0 steps"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def draw_twice(terminal: Terminal, *, is_transient: bool = False) -> list[str]:
    """Draw two frames, print lines between them; returns the last frame."""
    made = record(spec(a={}, b={}), a=ran(S.IN_PROGRESS))
    with live.LiveDisplay(terminal, is_transient=is_transient) as display:
        display.draw(StatusView(made), AFTER_MS)
        display.print_text("[red]Redis\x1b[2J[/] is unavailable")
        made.steps["a"] = ran()
        display.draw(StatusView(made), AFTER_MS)
    return frame(made)


def visible(written: str) -> list[str]:
    """The lines on a terminal after all that was written to it, without colours."""
    lines, row = [""], 0
    for code, text in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", written):
        if code.endswith("A"):
            row -= int(code[:-1])
        elif code.endswith("K"):
            lines[row] = ""
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text and text != "\r":
            lines[row] += text
    return [line.rstrip() for line in lines if line]


def test_a_live_display_redraws_in_place_below_the_printed_lines(terminal: Terminal) -> None:
    last = draw_twice(terminal)

    assert visible(terminal.getvalue()) == [r"[red]Redis\x1b[2J[/] is unavailable", *last]
    assert "\x1b[32mcomplete" in terminal.getvalue()


def test_nothing_remains_of_a_transient_display_but_the_printed_lines(terminal: Terminal) -> None:
    draw_twice(terminal, is_transient=True)

    assert visible(terminal.getvalue()) == [r"[red]Redis\x1b[2J[/] is unavailable"]


def test_a_live_display_without_colours_has_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    draw_twice(terminal)

    assert "\x1b[32m" not in terminal.getvalue()
