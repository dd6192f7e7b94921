"""The pytest plugin: the fixture `rehearse`, and where a rehearsal stood when its test failed.

    def test_a_large_order_waits_for_its_manager(rehearse):
        play = rehearse("order.yaml", {"amount": 900}, executors="orders")

pytest loads this in every run where the package is installed: nothing of ours is imported until a test asks
for the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.testing import WorkflowTest

_BEGUN = pytest.StashKey["list[WorkflowTest]"]()
_FAILED = pytest.StashKey[bool]()


@pytest.fixture
def rehearse(request: pytest.FixtureRequest) -> Generator[type[WorkflowTest], None, None]:
    """Start workflow tests: it takes what `orchestrator.testing.WorkflowTest` takes. When the test has passed,
    every kill that it ordered must have happened."""
    from orchestrator.testing import WorkflowTest

    begun: list[WorkflowTest] = []
    request.node.stash[_BEGUN] = begun

    class Watched(WorkflowTest):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    yield Watched
    if not request.node.stash.get(_FAILED, False):
        for play in begun:
            play.check_kills()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    begun = item.stash.get(_BEGUN, None)
    if begun and call.when == "call" and call.excinfo is not None:
        item.stash[_FAILED] = True
        call.excinfo.value.add_note(str(begun[-1]))
    return (yield)
