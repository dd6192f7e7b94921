"""Layer 1 makes the decisions: specs, records, expressions, transitions. It uses no clock, socket or file."""
