"""Exports the traces of executions that have ended, as OpenTelemetry."""
