"""Run workflows in one process, without Redis."""
