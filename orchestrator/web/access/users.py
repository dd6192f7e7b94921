"""Users and roles. A user who operates may do everything; the other roles include no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection


class Role(IntEnum):
    """START may only start the workflow of its token, by the path for webhooks. READ changes nothing."""

    START = 1
    READ = 2
    OPERATE = 3


@dataclass(frozen=True, slots=True)
class User:
    """The sender of a request, and its role. `workflow` is the only one that a user with START may start."""

    name: str
    role: Role
    workflow: str | None = None

    def may(self, role: Role) -> bool:
        return self.role in (role, Role.OPERATE)


Authenticate = Callable[["HTTPConnection"], "User | Awaitable[User | None] | None"]
"""A function of the application around ours, which may be async: the user of a request, or None."""

LOCAL_USER = User("local", Role.OPERATE)
"""The user of a page without authentication, which only loopback addresses can use."""
