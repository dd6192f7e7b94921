"""Tables: what they look like in a pipe, on a terminal, and when what they show is odd."""

from __future__ import annotations

import io

import click
import pytest

from orchestrator.cli.output import tables
from orchestrator.cli.output.tables import (
    Column,
    display_width,
    echo_table,
    escape_line,
    is_coloured,
    table,
    truncate,
)
from rich_package import require_rich

COLUMNS: list[Column | str] = [
    "STEP",
    Column("STATUS", is_status=True),
    Column("RUN", is_number=True),
    "NOTE",
]
ROWS = [["check", "complete", "0", ""], ["ship", "failed", "12", "ValueError: no such address"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert table(COLUMNS, ROWS).splitlines() == [
        "STEP   STATUS    RUN  NOTE",
        "check  complete    0",
        "ship   failed     12  ValueError: no such address",
    ]


def test_a_table_without_rows_is_its_titles() -> None:
    assert table(["A", "B"], []) == "A  B"


def test_the_widest_column_gives_way_to_the_width() -> None:
    assert table(COLUMNS, ROWS, width=40).splitlines() == [
        "STEP   STATUS    RUN  NOTE",
        "check  complete    0",
        "ship   failed     12  ValueError: no su…",
    ]


def test_columns_that_are_equally_wide_give_way_together() -> None:
    assert table(["A", "B"], [["a" * 20, "b" * 20]], width=22).splitlines() == [
        "A           B",
        "aaaaaaaaa…  bbbbbbbbb…",
    ]


def test_a_line_that_cannot_fit_is_cut() -> None:
    assert table(["A", "B", "C"], [["a" * 9, "b" * 9, "c" * 9]], width=12).splitlines() == [
        "A       B  …",
        "aaaaa…  bbb…",
    ]


def test_a_status_has_its_colour_and_the_rest_has_none() -> None:
    title, check, ship = table(COLUMNS, ROWS, is_coloured=True).splitlines()

    assert title == click.style("STEP   STATUS    RUN  NOTE", bold=True)
    assert check == f"check  {click.style('complete', fg='green')}    0"
    assert ship == f"ship   {click.style('failed  ', fg='red')}   12  ValueError: no such address"


def test_a_status_that_is_cut_keeps_its_colour() -> None:
    columns: list[Column | str] = [Column("STATUS", is_status=True), "B"]

    (_, row) = table(columns, [["compensating", "b"]], width=11, is_coloured=True).splitlines()

    assert row == f"{click.style('compens…', fg='magenta')}  b"


def test_what_a_cell_says_moves_no_cursor_and_breaks_no_line() -> None:
    assert escape_line("two\nlines\tand \x1b[31mred\u202e") == r"two lines and \x1b[31mred\u202e"


def test_wide_characters_take_two_columns_and_accents_none() -> None:
    assert (display_width("支払い"), display_width("e\u0301"), display_width("é")) == (6, 1, 1)
    assert table(["A", "B"], [["支払い", "x"], ["pay", "y"]]).splitlines() == [
        "A       B",
        "支払い  x",
        "pay     y",
    ]


@pytest.mark.parametrize(
    ("width", "shown"), [(6, "支払い"), (5, "支払…"), (4, "支…"), (2, "…"), (1, "…"), (0, "")]
)
def test_a_cut_text_never_takes_more_than_its_room(width: int, shown: str) -> None:
    assert truncate("支払い", width) == shown


def test_a_row_with_too_few_cells_is_a_defect() -> None:
    with pytest.raises(ValueError, match="zip"):
        table(["A", "B"], [["a"]])


# ---- where it goes


def test_into_a_pipe_everything_goes_whole_and_plain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")

    echo_table(COLUMNS, ROWS)

    assert capsys.readouterr().out == table(COLUMNS, ROWS) + "\n"


def test_on_a_terminal_it_is_cut_and_coloured(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "has_rich", lambda: False)

    echo_table(COLUMNS, ROWS, terminal)

    assert terminal.getvalue() == table(COLUMNS, ROWS, width=40, is_coloured=True) + "\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_on_a_terminal_without_colours_it_is_only_cut(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(tables, "has_rich", lambda: False)
    monkeypatch.setenv(name, value)

    echo_table(COLUMNS, ROWS, terminal)

    assert not is_coloured(terminal)
    assert terminal.getvalue() == table(COLUMNS, ROWS, width=40) + "\n"


def test_an_empty_no_color_is_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")

    assert is_coloured(terminal)


def test_rich_shows_the_same_words(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    require_rich()
    monkeypatch.setenv("COLUMNS", "100")

    echo_table(COLUMNS, [*ROWS, ["[red]x[/]", ":smile:", "1", "a\nb"]], terminal)

    printed = terminal.getvalue()
    assert "\x1b[31mfailed" in printed
    assert [line.split() for line in click.unstyle(printed).splitlines()] == [
        ["STEP", "STATUS", "RUN", "NOTE"],
        ["check", "complete", "0"],
        ["ship", "failed", "12", "ValueError:", "no", "such", "address"],
        ["[red]x[/]", ":smile:", "1", "a", "b"],
    ]


def test_rich_cuts_to_the_terminal_and_respects_no_color(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_rich()
    monkeypatch.setenv("NO_COLOR", "1")

    echo_table(COLUMNS, [["ship", "failed", "12", "x" * 80]], terminal)

    lines = click.unstyle(terminal.getvalue()).splitlines()
    assert len(lines) == 2
    assert lines[1].rstrip().endswith("…")
    assert max(map(len, lines)) <= 40
    assert "\x1b[31m" not in terminal.getvalue()
