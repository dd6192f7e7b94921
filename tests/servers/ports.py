"""Ports for servers that cannot choose one themselves."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to outgoing connections, which would take one before its server does."""


def free_ports(count: int) -> list[int]:
    """Ports of this host that nothing listens on, drawn at random: other tests draw some at the same time."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().choice(PORTS)
            one = held.enter_context(socket.socket())
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return found
