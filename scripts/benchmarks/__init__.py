"""The measurements and reports of scripts/bench: one module for each kind of measurement."""
