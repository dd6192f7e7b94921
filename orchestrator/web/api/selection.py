"""Selects the executions of a bulk action or of a failure, a page at a time."""

from __future__ import annotations

from orchestrator.client import ExecutionFilter
from orchestrator.client.bulk import BulkAction
from orchestrator.web.instance import Instance


def select_page(
    instance: Instance,
    action: BulkAction,
    wanted: ExecutionFilter,
    failure: str | None,
    limit: int,
    after: str | None,
) -> tuple[list[str], str | None]:
    """The full ids of some executions that an action by this filter is sent to, and the cursor of the rest.

    Without a failure the cursor is that of a list. With one it is the last id: the executions of a failure
    are in no index, so the earlier ones are read again. If that execution no longer has the failure, as after
    a retry, the page begins at the start.
    """
    if failure is None:
        page = instance.client.list(wanted, limit, after or None)
        return [one.workflow_execution_id for one in page.executions], page.cursor
    found = list(instance.client.select(action, wanted, failure))
    start = found.index(after) + 1 if after in found else 0
    ids = found[start : start + limit]
    return ids, ids[-1] if start + limit < len(found) else None
