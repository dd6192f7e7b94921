"""Entries of a history in words."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.explain.history_text import VERBS, describe_entry
from orchestrator.application.records.status import StepStatus


def entry(**keys: Any) -> dict[str, Any]:
    return {"at": "2026-01-01T00:00:01.250Z", "cause": "1767225601250-0", **keys}


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"workflow": "in_progress"}, "is in progress"),
        ({"workflow": "failed", "error": {"message": "no", "type": "E"}}, "is failed: E: no"),
        ({"step": "a", "from": "in_progress", "to": "complete"}, "complete"),
        ({"step": "a", "from": "complete", "to": "ready"}, "reset"),
        ({"step": "a", "from": "in_progress", "to": "in_progress"}, "dispatched again"),
        ({"step": "a", "from": "on_hold", "to": "retry"}, "released, now retry"),
        (
            {"step": "a", "from": "ready", "to": "skipped", "reason": "parent b failed"},
            "skipped: parent b failed",
        ),
        (
            {
                "step": "a",
                "to": "failed",
                "reason": "x",
                "error": {"kind": "lost", "message": "gone\nfor good"},
            },
            "failed: x; gone",
        ),
        ({"step": "a", "state_changed": ["n", "m"]}, "state changed: n, m"),
        ({"step": "a", "state_removed": ["ok", "error"]}, "removed from the state: ok, error"),
        ({"step": "a", "shared": "global:total"}, "shared global:total"),
        ({"signal": "go"}, "signal go kept until a step waits for it"),
        ({"step": "a", "log": '"hello"'}, '"hello"'),
        ({"webhook_sent": {"code": 200}}, 'webhook sent {"code": 200}'),
        ({"step": "a", "to": "somewhere_new"}, "somewhere new"),
        ({"control": "cancel", "by": "ada", "reason": "a duplicate"}, "cancel requested by ada: a duplicate"),
        ({"control": "hold", "step": "a"}, "hold requested"),
        ({"step": "a", "line": "half way"}, "log: half way"),
        ({"control": "retry", "inputs": ["a", "b"]}, "retry requested: replaced inputs: a, b"),
        ({"step": "a", "to": "complete", "output": {"n": 1}}, 'complete: output {"n": 1}'),
        ({"step": "a", "to": "in_progress", "inputs": {"n": 1}}, 'dispatched: input {"n": 1}'),
        (
            {"step": "a", "to": "failed", "error": {"message": "no", "not_retried": "it is final"}},
            "failed: no; not retried: it is final",
        ),
    ],
)
def test_an_entry_is_described_in_words(keys: dict[str, Any], told: str) -> None:
    assert describe_entry(entry(**keys)) == told


def test_every_status_of_a_step_has_a_verb() -> None:
    assert list(VERBS) == [status.value for status in StepStatus]


def test_a_large_value_is_cut() -> None:
    told = describe_entry(entry(step="a", to="complete", output={"text": "é" * 300}))

    assert told.endswith(" ... (612 bytes in all; --json shows them)")
    assert len(told) < 300
