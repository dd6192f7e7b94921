"""Layer 4: the code that runs steps, inside an RQ worker process."""
