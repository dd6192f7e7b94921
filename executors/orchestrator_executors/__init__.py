"""Layer 5: executors, plain functions from a dictionary to a dictionary. They import nothing of the
orchestrator.

Every worker finds the built-in executors (`http`, `file`, `process` and so on) by name. To use another module
of executors, pass `--executors orchestrator_executors.examples` or set ORCHESTRATOR_EXECUTORS.
"""
