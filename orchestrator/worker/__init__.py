"""Layer 4 runs: our code inside an RQ worker process."""
