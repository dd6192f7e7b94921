"""Layer 1 decides: specs, records, expressions and transitions, without clock, socket or file."""
