"""The errors of a workflow test. They are about the test: failures of the workflow are results.

WorkflowTestError        an unknown name, a wrong argument, or a mock without an answer
├── MockMissing          a step calls an executor that has neither a function nor a mock
└── CallLimitReached     the workflow did not end within the limit of calls
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from orchestrator.application.errors import OrchestratorError


class WorkflowTestError(OrchestratorError):
    """The test is wrong."""


class MockMissing(WorkflowTestError):
    def __init__(self, step: str, fn: str) -> None:
        super().__init__(f"step {step} calls {fn!r}: no executor and no mock; add test.mock({fn!r}, ...)")
        self.step, self.fn = step, fn


class CallLimitReached(WorkflowTestError):
    """The workflow did not end within `max_calls` calls of executors."""


def unknown_name_error(what: str, name: str, known: Iterable[str]) -> WorkflowTestError:
    """The error for an unknown name, with the known names and the most similar one."""
    names = list(dict.fromkeys(known))
    close = get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return WorkflowTestError(f"{what} {name!r}; known: {', '.join(names) or 'none'}{hint}")
