"""Layer 5: plain functions, dictionaries in and dictionaries out. They import nothing of the orchestrator.

Every worker finds the built-in executors (`http`, `file`, `process` and so on) by their names. Name a
module of executors with `--executors orchestrator_executors.examples`, or in ORCHESTRATOR_EXECUTORS.
"""
