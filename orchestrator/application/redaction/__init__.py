"""Redacts secrets: by the name of their key, and by their value."""
