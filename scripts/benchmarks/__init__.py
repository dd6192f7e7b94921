"""What scripts/bench measures, and how it tells: one module for each kind of measurement."""
