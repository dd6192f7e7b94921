"""Libraries that only some documents need. The extra `convert` installs them."""

from __future__ import annotations

from orchestrator.application.errors import OrchestratorError


class MissingLibrary(OrchestratorError):
    """The document needs a library that is not installed."""

    def __init__(self, language: str, library: str) -> None:
        super().__init__(
            f"converting {language} needs {library}, which is not installed:"
            " pip install 'rq-orchestrator[convert]'"
        )
        self.library = library
