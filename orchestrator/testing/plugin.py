"""The pytest plugin: the fixture `workflow_test`, and the state of the workflow in the report of a failure.

    def test_a_large_order_waits_for_its_manager(workflow_test):
        test = workflow_test("order.yaml", {"amount": 900}, executors="orders")

pytest loads this module in every run where the package is installed: it imports nothing of ours before a test
uses the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.testing import WorkflowTest

_STARTED = pytest.StashKey["list[WorkflowTest]"]()
_FAILED = pytest.StashKey[bool]()


@pytest.fixture
def workflow_test(request: pytest.FixtureRequest) -> Generator[type[WorkflowTest], None, None]:
    """Start workflow tests: takes the arguments of `orchestrator.testing.WorkflowTest`. When the test has
    passed, every kill that it planned must have happened."""
    from orchestrator.testing import WorkflowTest

    started: list[WorkflowTest] = []
    request.node.stash[_STARTED] = started

    class RecordedWorkflowTest(WorkflowTest):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    yield RecordedWorkflowTest
    if not request.node.stash.get(_FAILED, False):
        for one in started:
            one.check_kills()


@pytest.fixture
def rehearse(workflow_test: type[WorkflowTest]) -> type[WorkflowTest]:
    """The old name of the fixture `workflow_test`."""
    return workflow_test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    started = item.stash.get(_STARTED, None)
    if started and call.when == "call" and call.excinfo is not None:
        item.stash[_FAILED] = True
        call.excinfo.value.add_note(str(started[-1]))
    return (yield)
