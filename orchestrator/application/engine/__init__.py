"""Every transition of a workflow record. Pure: no clock, no I/O."""
