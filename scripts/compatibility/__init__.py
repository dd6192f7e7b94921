"""The parts of scripts/matrix and scripts/check-wheel. They use the standard library only."""
