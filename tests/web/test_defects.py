"""A defect: the page says so without its text, which is in the log."""

from __future__ import annotations

import logging

import pytest

from orchestrator.web.pages import executions
from servers.page_server import PAGE, PageServer


def test_a_defect_is_a_page_without_its_text(
    site: PageServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the text of a defect")

    monkeypatch.setattr(executions, "find_page", fail)
    caplog.set_level(logging.ERROR, "orchestrator")

    response = site.get("/executions", headers=PAGE)

    assert response.status_code == 500
    assert "Internal error" in response.text
    assert "the text of a defect" not in response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert any("the text of a defect" in (record.exc_text or "") for record in caplog.records)
