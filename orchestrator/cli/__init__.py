"""The command line: wires the rooms together and decides nothing.

Nothing heavy is imported before a command runs, so that `orchestrator --help` answers at once.
"""

from orchestrator.cli.main import main

__all__ = ["main"]
