"""Plain values: paths, durations, limits, references to payloads and secrets, failure kinds."""
