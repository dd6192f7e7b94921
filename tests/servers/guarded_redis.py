"""A Redis with the users of docs/acl, as docs/security.md says to set it up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys, job_id_prefix
from processes import ROOT
from servers.redis_server import RedisServer, own_redis, require_redis_version

ACL = ROOT / "docs" / "acl"
USERS = ("producer", "worker", "coordinator", "reader", "operator")
_OPEN = "user default on nopass ~* &* +@all\n"
_ADMIN = "user admin on >admin-password ~* &* +@all\n"


@dataclass
class GuardedRedis:
    server: RedisServer

    def url(self, user: str) -> str:
        return f"unix://{user}@{self.server.socket}?password={user}-password"

    def client(self, user: str) -> Client:
        return connect(self.url(user))

    def refusals(self) -> list[str]:
        """What some user was not allowed to do."""
        with self.client("admin") as admin:
            return [
                f"{one['username']}: {one['reason']} {one['object']} in {one['context']}"
                for one in admin.acl_log()
            ]


def user_of_queue(queue: str) -> str:
    """The line for a worker user that is limited to one queue."""
    template = (ACL / "worker-of-one-queue.template").read_text()
    line = template.replace("orchestrator_2EJOBS__", job_id_prefix(Keys().queue(queue)))
    return line.replace("QUEUE", queue)


@contextmanager
def guarded_redis(folder: Path, *queues: str) -> Iterator[GuardedRedis]:
    """Until it answers, everybody may ask; then the users of the documentation are loaded, an admin, and a
    worker user for each of the queues."""
    require_redis_version((7, 0), "docs/acl tells reading from writing")
    users = folder / "users.acl"
    users.write_text(_OPEN)
    with own_redis(folder, "--aclfile", str(users)) as server:
        lines = [path.read_text() for path in sorted(ACL.glob("*.acl"))]
        users.write_text("".join([*lines, *map(user_of_queue, queues), _ADMIN]))
        with server.client() as client:
            client.acl_load()
        yield GuardedRedis(server)
