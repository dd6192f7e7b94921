"""Registered workflows, for display: names, versions, and how many executions are open."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.records.events import iso
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys

SCAN_COUNT = 500


@dataclass(frozen=True, slots=True)
class Definition:
    """A registered name. `open` counts the open executions by workflow_id: of the registered version, and of
    other documents with the same `name`."""

    name: str
    workflow_id: str
    registered_at: str | None
    is_scheduled: bool
    open: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered name, and how many executions of the registered version are open."""

    name: str
    workflow_id: str
    registered_at: str | None
    open: int
    is_scheduled: bool


def registrations(client: Client, keys: Keys) -> list[Registration]:
    """All registered workflows, sorted by name, in two round trips and without their documents."""
    with translate_errors(), client.pipeline(transaction=False) as pipe:
        pipe.hgetall(keys.definitions)
        pipe.hkeys(keys.schedules)
        registered, scheduled = pipe.execute()
        for workflow_id in registered.values():
            pipe.hmget(keys.spec(workflow_id), ["executions", "registered_ms"])
        rows = pipe.execute()
    return sorted(
        (
            Registration(
                name,
                workflow_id,
                None if at_ms is None else iso(int(at_ms)),
                int(count or 0),
                name in scheduled,
            )
            for (name, workflow_id), (count, at_ms) in zip(registered.items(), rows, strict=True)
        ),
        key=lambda one: one.name,
    )


def definitions(client: Client, keys: Keys) -> list[Definition]:
    """All registered workflows, sorted by name. This reads every stored spec, so it is meant for
    operators."""
    with translate_errors():
        registered: dict[str, str] = client.hgetall(keys.definitions)  # type: ignore[assignment]
        scheduled: set[str] = set(client.hkeys(keys.schedules))  # type: ignore[arg-type]
        specs = _specs(client, keys)
    return [
        _definition(name, workflow_id, specs, name in scheduled)
        for name, workflow_id in sorted(registered.items())
    ]


def _definition(
    name: str, workflow_id: str, specs: dict[str, dict[str, Any]], is_scheduled: bool
) -> Definition:
    spec = specs.get(workflow_id, {})
    title = spec.get("name")
    others = {
        one: other["open"]
        for one, other in sorted(specs.items())
        if other["open"] and one != workflow_id and title is not None and other["name"] == title
    }
    at_ms = spec.get("registered_ms")
    return Definition(
        name,
        workflow_id,
        None if at_ms is None else iso(int(at_ms)),
        is_scheduled,
        {workflow_id: spec.get("open", 0), **others},
    )


def _specs(client: Client, keys: Keys) -> dict[str, dict[str, Any]]:
    """By workflow_id: the name in the document, the number of open executions, the registration time."""
    found: dict[str, dict[str, Any]] = {}
    names = [str(key) for key in client.scan_iter(keys.spec("*"), count=SCAN_COUNT)]
    for at in range(0, len(names), SCAN_COUNT):
        batch = names[at : at + SCAN_COUNT]
        with client.pipeline(transaction=False) as pipe:
            for key in batch:
                pipe.hmget(key, ["document", "executions", "registered_ms"])
            rows: list[list[str | None]] = pipe.execute()
        for key, (document, executions, registered_ms) in zip(batch, rows, strict=True):
            if document is not None:
                found[key.removeprefix(keys.spec(""))] = {
                    "name": loads(document).get("name"),
                    "open": int(executions or 0),
                    "registered_ms": registered_ms,
                }
    return found
