"""Documents as short as a case needs them; `step`, `document` and `when` are those of `coreworld`."""

from __future__ import annotations

from typing import Any

from worlds.documents import Json, step

NO: Any = {"==": [1, 2]}  # a condition that is false
AGAIN: Any = {"var": "again"}  # in a branch: the output says so
FAILED: Any = {"==": [{"var": "ok"}, False]}  # in a branch: the attempt failed


def jobless(name: str, after: str = "", **keys: Any) -> Json:
    """A step without an executor: it has one of wait, delay and switch."""
    return {key: value for key, value in {**step(name, after), "id": name, **keys}.items() if key != "op"}


def resets(*targets: str, if_: Any = AGAIN, done: Any = True) -> Json:
    """Branches that set these steps, by default when the output has a true `again`, or complete the step."""
    return {
        "branch": [
            {"condition": if_, "action": {"set": list(targets)}},
            {"condition": done, "action": "complete"},
        ]
    }


def branches(condition: Any, action: Any, **keys: Any) -> Json:
    """One branch."""
    return {"branch": [{"condition": condition, "action": action, **keys}]}


def halts(result: Any) -> Json:
    return branches(True, "halt", result=result)


def skips() -> Json:
    """The step is skipped when its output has a true `skip`."""
    return branches({"var": "skip"}, "skip")


def child(name: str, document: Json | str, after: str = "", **keys: Any) -> Json:
    """A step that is a workflow of its own: a document, or the name of a registered one."""
    return jobless(name, after, workflow=document, **keys)
