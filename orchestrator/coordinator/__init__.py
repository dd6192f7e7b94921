"""The coordinator turns events into commits."""
