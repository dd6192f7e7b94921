"""Tables and lines: in a pipe, on a terminal, and with odd data."""

from __future__ import annotations

import io

import click
import pytest

from orchestrator.cli.output.console import LinePrinter, can_redraw
from orchestrator.cli.output.escaping import escape_line
from orchestrator.cli.output.tables import Column, format_table, print_table

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


def shown(terminal: Terminal) -> list[str]:
    """The lines on the terminal, without colours and trailing spaces."""
    return [line.rstrip() for line in click.unstyle(terminal.getvalue()).splitlines()]


# ---- in a pipe


def test_columns_are_aligned_and_numbers_stand_at_the_right() -> None:
    assert format_table(COLUMNS, ROWS).splitlines() == [
        "STEP   STATUS    RUN  NOTE",
        "check  complete    0",
        "ship   failed     12  ValueError: no such address",
    ]


def test_a_table_without_rows_is_its_heading() -> None:
    assert format_table(["A", "B"], []) == "A  B"


@pytest.mark.parametrize("name", ["COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_in_a_pipe_a_table_is_whole_and_plain(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "20" if name == "COLUMNS" else "1")
    long_row = ["long", "failed", "1", "x" * 5_000]

    print_table(COLUMNS, [*ROWS, long_row])

    printed = capsys.readouterr().out
    assert printed == format_table(COLUMNS, [*ROWS, long_row]) + "\n"
    assert "x" * 5_000 in printed
    assert "\x1b" not in printed


def test_wide_characters_take_two_columns() -> None:
    assert format_table(["A", "B"], [["支払い", "x"], ["pay", "y"]]).splitlines() == [
        "A       B",
        "支払い  x",
        "pay     y",
    ]


def test_a_row_with_too_few_cells_is_a_defect() -> None:
    with pytest.raises(ValueError, match="zip"):
        format_table(["A", "B"], [["a"]])


def test_control_characters_are_escaped_and_line_breaks_are_spaces() -> None:
    assert escape_line("two\nlines\tand \x1b[31mred\u202e") == r"two lines and \x1b[31mred\u202e"
    assert format_table(["A\n"], [["a\nb\x1b[2J"]]).splitlines() == ["A", r"a b\x1b[2J"]


@pytest.mark.parametrize(
    "text", ["[red]x[/]", ":smile:", "[/nothing]", "\\[x]", "[link=https://a.b]c[/link]"]
)
def test_markup_of_rich_in_data_is_plain_text(terminal: Terminal, text: str) -> None:
    print_table(["A"], [[text]], terminal)
    LinePrinter(terminal).print(text)

    assert format_table(["A"], [[text]]).splitlines() == ["A", text]
    assert shown(terminal) == ["A", text, text]


# ---- on a terminal


def test_on_a_terminal_the_widest_column_is_cut(terminal: Terminal) -> None:
    print_table(COLUMNS, ROWS, terminal)

    assert shown(terminal) == [
        "STEP   STATUS    RUN  NOTE",
        "check  complete    0",
        "ship   failed     12  ValueError: no su…",
    ]


@pytest.mark.parametrize("width", [5, 12, 20, 30])
def test_a_table_never_exceeds_a_narrow_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    print_table(COLUMNS, ROWS, terminal)

    assert len(shown(terminal)) == 3
    assert max(map(len, shown(terminal))) <= width


def test_a_wrapped_column_is_not_cut(terminal: Terminal) -> None:
    print_table(
        ["A", Column("HOW", is_wrapped=True)], [["a" * 10, "reads check; map; waits for go"]], terminal
    )

    assert shown(terminal) == ["A           HOW", "aaaaaaaaaa  reads check; map; waits for", "            go"]


def test_a_status_has_its_colour_and_other_cells_have_none(terminal: Terminal) -> None:
    print_table(COLUMNS, [["failed", "failed", "1", ""], ["b", "odd", "2", ""]], terminal)

    assert terminal.getvalue().count("\x1b[31mfailed") == 1


def test_a_status_that_is_cut_keeps_its_colour(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "11")

    print_table([Column("STATUS", is_status=True), "B"], [["compensating", "b"]], terminal)

    assert "\x1b[35mcompens…" in terminal.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_colours_gets_none(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    print_table(COLUMNS, ROWS, terminal)

    assert "\x1b[31m" not in terminal.getvalue()
    assert shown(terminal)[1] == "check  complete    0"


def test_an_empty_no_color_keeps_the_colours(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")

    print_table(COLUMNS, ROWS, terminal)

    assert "\x1b[31mfailed" in terminal.getvalue()


def test_only_a_terminal_with_cursor_movements_is_redrawn(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_redraw(terminal)
    assert not can_redraw(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not can_redraw(terminal)


# ---- lines


def test_a_line_is_cut_and_coloured_on_a_terminal_only(terminal: Terminal) -> None:
    pipe = io.StringIO()

    for stream in (terminal, pipe):
        LinePrinter(stream).print("x" * 50, "complete")

    assert pipe.getvalue() == "x" * 50 + "\n"
    assert shown(terminal) == ["x" * 39 + "…"]
    assert terminal.getvalue().startswith("\x1b[32m")
