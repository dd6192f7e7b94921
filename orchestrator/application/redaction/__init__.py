"""Hide secrets, by the name of a key and by value."""
