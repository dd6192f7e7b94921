"""The web page of `orchestrator run --web`: a thread of this process serves it while the workflow runs, and
afterwards until ^C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.cli.errors import Failure
from orchestrator.cli.interruption import Interrupted
from orchestrator.cli.web_server import DEFAULT_PORT, listen, url_of

if TYPE_CHECKING:
    from orchestrator.embedded import EmbeddedStack

NO_REDIS = "--web needs a redis-server, which this demo does not have"


@dataclass(frozen=True, slots=True)
class RunPage:
    """The page, while it is served."""

    url: str

    def path_of(self, execution_id: str) -> str:
        return f"{self.url}/executions/{execution_id}"

    def wait_for_interrupt(self) -> None:
        """Serve until a signal asks this process to stop, which then is no failure."""
        try:
            while True:
                signal.pause()
        except Interrupted:
            pass


@contextmanager
def serve_page(stack: EmbeddedStack) -> Iterator[RunPage]:
    """Serve the page of this system on a port of this machine, until the block ends."""
    from orchestrator.web import app
    from orchestrator.web.server import PageServer

    if stack.settings is None:
        raise Failure(NO_REDIS)
    try:
        listener = listen("127.0.0.1", DEFAULT_PORT)
    except Failure:  # another page has this port
        listener = listen("127.0.0.1", 0)
    with listener, PageServer(app(settings=stack.settings)).beside(listener):
        yield RunPage(url_of(listener))
