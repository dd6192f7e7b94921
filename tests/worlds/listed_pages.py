"""Real executions, schedules and letters for tests of the lists of the page."""

from __future__ import annotations

from typing import Any

from orchestrator.client import Client
from worlds.documents import Json, document, step

ADD = document(step("add", input={"a": 1, "b": {"var": "input.b"}}), name="sums")
WAIT = document({"id": "review", "wait": {"signal": "approved"}}, name="approval")


def failing(message: str, name: str = "invoice") -> Json:
    return document(step("post", fn="fail", retry=0, input={"message": message}), name=name)


def start_and_end(client: Client, workflow: Any, execution_id: str, **options: Any) -> None:
    """Start an execution and wait for its end, whatever it is."""
    client.start(workflow, options.pop("inputs", {}), execution_id, **options)
    client.wait(execution_id)


HOSTILE_TEXTS = {
    "a script": "<script>document.title = 'taken over'</script>",
    "an image": "<img src=x onerror=\"document.title = 'taken over'\">",
    "quotes": "\"' autofocus onfocus=document.title='taken&over' x=\"",
    "a template": "{{ 1337 * 1337 }}{% raw %}",
    "control characters": "bell\x07 escape\x1b[31m null-like\x01",
    "reversed text": "abc\u202etxt.exe\u2066\u200b",
}
