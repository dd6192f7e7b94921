"""The HTTP API: /api/v1. Each module has the routes of one noun, with models of what they take and
return.

`routes.py` collects them, `route.py` makes their endpoints, and `openapi.py` describes them.
"""
