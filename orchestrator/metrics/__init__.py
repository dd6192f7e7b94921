"""Metrics for Prometheus: read from Redis when they are asked for. See docs/metrics.md."""
