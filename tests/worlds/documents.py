"""Workflow documents in one line each, as a user writes them.

document(step("a"), step("b", after="a", retry=2), outputs={"n": {"var": "state.n"}})
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def step(name: str, after: str | Sequence[str] = (), **keys: Any) -> Json:
    """A step as written in a document; `after` names its parents."""
    parents = after.split() if isinstance(after, str) else list(after)
    return {"op": name, **({"depends_on": parents} if parents else {}), **keys}


def document(*steps: Json, **keys: Any) -> Json:
    return {"steps": list(steps), **keys}


def document_of(steps: Mapping[str, Mapping[str, Any]], **keys: Any) -> Json:
    """A document whose steps are given by id; the fn of a step is its id unless it says otherwise."""
    return {"steps": [{"id": step_id, "fn": step_id, **step} for step_id, step in steps.items()], **keys}


def when(condition: Any, action: Any, **keys: Any) -> Json:
    """An entry of `branch`."""
    return {"condition": condition, "action": action, **keys}
