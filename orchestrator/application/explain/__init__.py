"""Explains, from a record alone, why an execution or step waits, failed or did not run."""
