"""The command line: parses arguments, calls one function of another package, prints the result.

Heavy packages (redis, rq, pydantic, rich) are imported inside the functions that need them, so that
`orchestrator --help` and shell completion start quickly.
"""

from orchestrator.cli.main import main

__all__ = ["main"]
