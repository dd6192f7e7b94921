"""Checks for data that another client has damaged, and that coordinators repair."""

from __future__ import annotations

from orchestrator.application.explain.text import join_names
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.redis_rq.connection import translate_errors
from orchestrator.redis_rq.queries.pending_events import all_streams
from orchestrator.redis_rq.stream_health import StreamHealth


def check_damage(snapshot: RedisSnapshot) -> list[Check]:
    return [_check_stream_ids(snapshot), _check_partial(snapshot)]


def _check_stream_ids(snapshot: RedisSnapshot) -> Check:
    """Check that no stream has a last id far in the future: after the largest id it takes no more entries."""
    keys = snapshot.keys
    streams = [*all_streams(snapshot.client, keys), keys.dead_letters]
    absurd = StreamHealth(snapshot.client, keys).absurd(streams)
    if not absurd:
        return ok("stream_ids", "all streams take new entries", absurd=0)
    names = join_names(f"{stream} ({last})" for stream, last in absurd.items())
    advice = (
        "a coordinator repairs them within ten seconds, once the entries with such ids are handled; find the"
        " client that chose these ids"
    )
    return problem("stream_ids", f"the last id lies far in the future: {names}", advice, absurd=len(absurd))


def _check_partial(snapshot: RedisSnapshot) -> Check:
    """Check that no execution waits to be repaired after some of its keys could not be written."""
    with translate_errors():
        listed = int(snapshot.client.scard(snapshot.keys.partial))
    if not listed:
        return ok("partial", "no execution was written in part", executions=0)
    found = f"{listed} executions were written without some of their keys, and are not repaired yet"
    advice = "the logs of the coordinators name the keys; delete or rename those of a wrong type"
    return warning("partial", found, advice, executions=listed)
