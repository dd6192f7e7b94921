"""Bulk actions: retry, cancel or delete the selected executions, or all that match a filter.

A preview says how many they are and shows the first ones. It carries their ids, and the action is sent to
these alone: an execution that is created meanwhile, or only then matches the filter, is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from orchestrator.application.records.events import ControlEvent
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.client import BulkResult, ExecutionFilter, NoReply
from orchestrator.client.bulk import BulkAction
from orchestrator.client.replies import REPLY_TIMEOUT_S
from orchestrator.redis_rq.scripts import batches
from orchestrator.web.access.guard import user_of
from orchestrator.web.actions import log_action
from orchestrator.web.execution_filters import NAMES, Filters, read_filters
from orchestrator.web.forms import Form, with_form
from orchestrator.web.instance import Instance, instance_of
from orchestrator.web.pages.executions import make_rows
from orchestrator.web.problems import Problem
from orchestrator.web.rendering import render

MAX_EXECUTIONS = 5_000
"""A bulk action of the page is sent to so many executions at most, the newest."""
MAX_SHOWN = 20
MAX_REASONS_SHOWN = 50
MAX_REASON_CHARS = 1_000
BATCH_SIZE = 100
"""If a coordinator ends during an action, the results of one batch are not known."""

_W = WorkflowStatus
STATUSES: Mapping[BulkAction, frozenset[WorkflowStatus]] = {
    "retry": frozenset({_W.FAILED, _W.CANCELLED}),
    "cancel": frozenset(WorkflowStatus) - FINAL_WORKFLOW_STATUSES,
    "delete": FINAL_WORKFLOW_STATUSES,
}
"""Executions in another status reject the action, so a filter does not select them."""


@with_form
def preview(request: Request, form: Form) -> Response:
    """Say which executions an action would be sent to, and ask."""
    instance, action, filters = instance_of(request), _read_action(form), read_filters(form)
    is_all = form.get("scope") == "all"
    ids = list(_select(instance, action, filters)) if is_all else _read_ids(form.getlist("id"))
    shown = instance.listing.find(ids[:MAX_SHOWN], ExecutionFilter())
    return render(
        request,
        "bulk_preview.html",
        page_name="executions",
        action=action,
        ids=ids[:MAX_EXECUTIONS],
        is_cut=len(ids) > MAX_EXECUTIONS,
        is_all=is_all,
        rows=make_rows(instance, shown),
        texts=filters.texts,
    )


@with_form
def run(request: Request, form: Form) -> Response:
    """Send an action to the executions of a preview, and say what each replied."""
    instance, action = instance_of(request), _read_action(form)
    ids = _read_ids(form.get("ids", "").split())[:MAX_EXECUTIONS]
    reason = form.get("reason", "").strip()[:MAX_REASON_CHARS] or None
    result = _send(instance, action, ids, reason, user_of(request).name)
    for one in result.done:
        log_action(request, action, one.partition("#")[2], "ok")
    for one, why in result.rejected.items():
        log_action(request, action, one.partition("#")[2], f"rejected: {why}")
    for one in result.unknown:
        log_action(request, action, one.partition("#")[2], "no_reply")
    return render(
        request,
        "bulk_result.html",
        page_name="executions",
        action=action,
        result=result,
        reasons=_group_by_reason(result.rejected),
        texts=_read_texts(form),
    )


ROUTES = [
    Route("/bulk/preview", preview, methods=["POST"], name="preview_bulk"),
    Route("/bulk", run, methods=["POST"], name="run_bulk"),
]


@dataclass(slots=True)
class SentResult(BulkResult):
    """The replies to a bulk action, and the executions without one: it may still reach those in `unknown`,
    and was not sent to those in `unsent`."""

    unknown: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)


def _send(
    instance: Instance, action: BulkAction, ids: Sequence[str], reason: str | None, by: str
) -> SentResult:
    result = SentResult()
    waiting = batches(iter(ids), BATCH_SIZE)
    for batch in waiting:
        events = [ControlEvent(one, action, reason=reason, by=by) for one in batch]
        try:
            found = instance.controls.send_all_and_wait(events, REPLY_TIMEOUT_S)
        except NoReply:
            result.unknown += batch
            result.unsent += [one for rest in waiting for one in rest]
            break
        result.done += found.done
        result.rejected |= found.rejected
    return result


def _select(instance: Instance, action: BulkAction, filters: Filters) -> Iterator[str]:
    """The executions that match filters, and one more than an action takes if there are more."""
    wanted = filters.wanted
    if filters.failure is None:
        allowed = [one for one in (wanted.statuses or WorkflowStatus) if one in STATUSES[action]]
        if not allowed:
            return iter(())
        wanted = replace(wanted, statuses=allowed)
    return islice(instance.client.select(action, wanted, filters.failure), MAX_EXECUTIONS + 1)


def _read_action(form: Form) -> BulkAction:
    action = form.get("action", "")
    if action not in STATUSES:
        raise Problem(400, "bad_form", f"action must be one of {', '.join(STATUSES)}, not {action[:40]!r}")
    return cast(BulkAction, action)


def _read_ids(ids: Sequence[str]) -> list[str]:
    """Full ids as the pages have them, each once."""
    for one in ids:
        if "#" not in one or len(one) > 1_000:
            raise Problem(400, "bad_form", f"{one[:80]!r} is not the full id of an execution")
    return list(dict.fromkeys(ids))


def _read_texts(form: Form) -> dict[str, list[str]]:
    """The filters of the list from which the action came, for a link back to it."""
    return {name: form.getlist(name) for name in NAMES}


def _group_by_reason(rejected: Mapping[str, str]) -> dict[str, list[str]]:
    """The ids of the executions that rejected an action, by their reasons; the first reasons only. A reason
    that names its execution counts as the same as that of another."""
    groups: dict[str, list[str]] = {}
    for one, reason in rejected.items():
        execution_id = one.partition("#")[2]
        text = reason.replace(repr(one), "the execution").replace(repr(execution_id), "the execution")
        groups.setdefault(text, []).append(execution_id)
    return dict(islice(groups.items(), MAX_REASONS_SHOWN))
