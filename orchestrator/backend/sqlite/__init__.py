"""The store and the runner on a SQLite file."""
