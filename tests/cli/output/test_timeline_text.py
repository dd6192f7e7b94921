"""Timelines as text: bars over one axis."""

from __future__ import annotations

import io

import pytest

from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.explain.timeline import Span, Timeline, TimelineRow
from orchestrator.cli.output.timeline_text import (
    ASCII_SIGNS,
    UNICODE_SIGNS,
    format_frame,
    format_timeline,
    select_signs,
    shorten_name,
)
from worlds.engine_world import world_of
from worlds.specs import task


def row(unit: str, status: str, *spans: Span) -> TimelineRow:
    return TimelineRow(unit, status, spans)


SHIP = row(
    "ship",
    "complete",
    Span("queued", 0, 1_000, 1, 0),
    Span("running", 1_000, 4_000, 1, 0, "retry"),
    Span("back_off", 4_000, 6_000, 2, 1, "in_progress"),
    Span("running", 6_000, 9_000, 2, 1, "complete"),
)
WAIT = row("approve", "waiting", Span("waiting", 9_000, None, 1, 0))


@pytest.mark.parametrize(
    ("signs", "ship", "wait"),
    [
        (ASCII_SIGNS, "..#####x~~~~######", "--"),
        (UNICODE_SIGNS, "··█████x░░░░██████", "──"),
    ],
)
def test_every_span_is_drawn_where_it_was(signs: dict[str, str], ship: str, wait: str) -> None:
    axis, first, second, legend = format_timeline(Timeline(0, 10_000, False, (SHIP, WAIT)), 55, signs)

    assert axis == f"         0{'10.0 s':>19}"
    assert first == f"ship     {ship:<20}  complete 6.0 s attempt 2"
    assert second == f"approve  {wait:>20}  waiting"
    assert (
        legend
        == "  ".join(
            f"{signs[kind]} {name}"
            for kind, name in (
                ("running", "running"),
                ("back_off", "back-off"),
                ("queued", "queued"),
                ("waiting", "waiting"),
            )
        )
        + "  x failed attempt"
    )


def test_a_short_run_is_drawn_over_a_long_wait() -> None:
    wait, run = Span("waiting", 0, 999, 1, 0, "in_progress"), Span("running", 500, 501, 1, 0, "complete")

    (_, line, _) = format_timeline(
        Timeline(0, 1_000, True, (row("a", "complete", wait, run),)), 40, ASCII_SIGNS
    )

    assert line.split()[1].count("#") == 1
    assert line.split()[1].startswith("---")


def test_a_timeline_fits_its_width_and_counts_what_is_left_out() -> None:
    rows = tuple(
        row(f"{'step' * 20}{n}", "complete", Span("running", 0, 10, 1, 0, "complete")) for n in range(3)
    )

    lines = format_timeline(Timeline(0, 10, True, rows, hidden_count=40), 80, ASCII_SIGNS)

    assert max(map(len, lines[:-1])) == 80
    assert lines[-1].startswith("and 40 more rows; # running")
    assert shorten_name(rows[0].unit) == "stepstepsteps..stepstepstep0"


def test_a_timeline_without_rows_or_time_is_drawn() -> None:
    assert format_timeline(Timeline(5, 5, True, ()), 30, ASCII_SIGNS)[0].split() == ["0", "0", "ms"]
    at_once = row("a", "complete", Span("running", 5, 5, 1, 0, "complete"))
    assert "#" in format_timeline(Timeline(5, 5, True, (at_once,)), 30, ASCII_SIGNS)[1]


def test_a_frame_has_no_more_lines_than_asked_for() -> None:
    world = world_of(*(task(f"s{n}") for n in range(30)))
    world.advance()

    frame = format_frame(StatusView(world.record), world.history, world.now_ms, 80, 10, ASCII_SIGNS)

    assert len(frame) == 9
    assert frame[-1].startswith("and 24 more rows")


@pytest.mark.parametrize(
    ("encoding", "signs"), [("utf-8", UNICODE_SIGNS), ("ascii", ASCII_SIGNS), ("latin-1", ASCII_SIGNS)]
)
def test_the_bars_are_what_the_stream_can_encode(encoding: str, signs: dict[str, str]) -> None:
    assert select_signs(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is signs
