"""Read-only queries of executions, workflows, events and workers."""
