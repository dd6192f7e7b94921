"""The processes of a worker: supervisor, work-horses and concurrent children."""
