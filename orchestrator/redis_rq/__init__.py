"""Layer 3 keeps and carries: every Redis command, every key and every RQ job."""
