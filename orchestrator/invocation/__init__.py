"""Find an executor by its name and call it. Every kind of worker uses this package."""
