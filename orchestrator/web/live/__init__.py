"""Live updates: what changes in an execution while a page shows it, as server-sent events.

hub.py      one thread and one subscription per Redis; reads each change once, for all open pages
delta.py    history entries and units as small events; pure
stream.py   the response of one page: its queue, heartbeats, limits, and the end
"""
