"""The Lua scripts. Each file starts with its arguments and its reply."""
