"""A site that needs another host, or lacks a file, is found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.documentation.site_checks import find_problems


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (
            '<script src="https://example.org/a.js"></script>',
            "loads https://example.org/a.js from another host",
        ),
        ('<link href="//example.org/a.css">', "loads //example.org/a.css from another host"),
        (
            '<img srcset="a.png 1x, https://example.org/b.png 2x">',
            "loads https://example.org/b.png from another host",
        ),
        ('<img src="pictures/missing.png">', "there is no pictures/missing.png"),
        ('<a href="missing.html#here">x</a>', "there is no missing.html#here"),
    ],
)
def test_what_is_wrong_on_a_page_is_found(tmp_path: Path, page: str, problem: str) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "page.html").write_text(page)

    assert list(find_problems(tmp_path)) == [f"page.html: {problem}"]


def test_a_link_in_text_may_lead_anywhere(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org/">x</a> <a href="page.html#x">y</a> '
        '<a href="mailto:a@example.org">z</a><img src="data:image/png;base64,AA">'
    )

    assert list(find_problems(tmp_path)) == []


def test_what_a_stylesheet_loads_from_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "a { background: url('https://example.org/x.png') } @import \"//example.org/b.css\";"
    )

    assert list(find_problems(tmp_path)) == [
        "a.css: loads https://example.org/x.png from another host",
        "a.css: loads //example.org/b.css from another host",
    ]
