"""Call an executor. Every kind of worker uses this package."""
