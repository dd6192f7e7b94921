"""An MCP server: tools with which a language model validates, starts, inspects and controls executions.

    arguments.py    what tools take: models, JSON schemas, problems
    system.py       one Redis, the user, and whether the server only reads
    tool.py         a tool: its function, and what it tells a client about itself
    workflows.py, starts.py, executions.py, steps.py, controls.py    the tools
    folding.py      keeps results small
    calls.py        runs a tool: arguments in, a result or an error out
    server.py       serves the tools over the standard input and output

Only `server.py` imports the library `mcp`, of the extra `mcp`.
"""
