"""Plain values: paths, durations, limits, JSON types, unit ids, payload and secret references, failures."""
