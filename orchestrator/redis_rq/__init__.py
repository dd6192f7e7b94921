"""Layer 3, storage and queue: every Redis command, every key and every RQ job."""
