"""Payload stores: where values are kept that are passed by reference (application/values/payload_refs.py).

    ORCHESTRATOR_PAYLOADS            redis (as if unset), file:///folder, or s3://bucket/prefix
    ORCHESTRATOR_PAYLOAD_TTL_S       for how long: a day more than ORCHESTRATOR_RETENTION_S unless given
    ORCHESTRATOR_PAYLOAD_MAX_BYTES   how large one value may be: 64 MiB unless given
    ORCHESTRATOR_S3_ENDPOINT         of a service that speaks S3 and is not Amazon's

Workers and clients read them, wherever they run, and must agree on the first; coordinators never look inside.
The work-horse of every step imports this: a store is made, and its library imported, when it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from orchestrator.application.errors import StoreError
from orchestrator.application.values.payload_refs import (
    MAX_PAYLOAD_BYTES,
    PayloadStore,
    payload_limit,
    read_positive_int,
)
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import TTL_S, RedisPayloads

ADDRESS_VARIABLE = "ORCHESTRATOR_PAYLOADS"
TTL_VARIABLE = "ORCHESTRATOR_PAYLOAD_TTL_S"
RETENTION_VARIABLE = "ORCHESTRATOR_RETENTION_S"
ENDPOINT_VARIABLE = "ORCHESTRATOR_S3_ENDPOINT"

RETENTION_MARGIN_S = 86_400


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    address: str = "redis"
    ttl_s: int = TTL_S
    max_bytes: int = MAX_PAYLOAD_BYTES
    s3_endpoint: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> PayloadSettings:
        retention_s = read_positive_int(environment, RETENTION_VARIABLE, TTL_S - RETENTION_MARGIN_S)
        made = cls(
            address=environment.get(ADDRESS_VARIABLE, "").strip() or "redis",
            ttl_s=read_positive_int(environment, TTL_VARIABLE, retention_s + RETENTION_MARGIN_S),
            max_bytes=payload_limit(environment),
            s3_endpoint=environment.get(ENDPOINT_VARIABLE) or None,
        )
        made.check()
        return made

    def check(self) -> None:
        """StoreError when there can be no such store."""
        parts = urlsplit(self.address)
        if self.address == "redis":
            return
        if parts.scheme == "file" and not parts.netloc and len(parts.path) > 1:
            return
        if parts.scheme == "s3" and parts.netloc:
            return
        raise StoreError(
            f"{ADDRESS_VARIABLE} must be redis, file:///an/absolute/folder or s3://bucket/prefix,"
            f" not {self.address[:200]!r}"
        )

    def prepare(self) -> None:
        """For all work-horses that are forked later: what takes long is done once. StoreError when a library
        is missing."""
        parts = urlsplit(self.address)
        if parts.scheme == "s3":
            _s3(parts.netloc, parts.path.strip("/"), self.s3_endpoint)

    def open(self, client: Client, keys: Keys) -> PayloadStore:
        """The store; the client and the keys are for one in Redis."""
        parts = urlsplit(self.address)
        if parts.scheme == "file":
            from orchestrator.payload_stores.folder import DirectoryPayloads

            return DirectoryPayloads(unquote(parts.path), self.ttl_s)
        if parts.scheme == "s3":
            return _s3(parts.netloc, parts.path.strip("/"), self.s3_endpoint)
        return RedisPayloads(client, keys, self.ttl_s)


@lru_cache(maxsize=8)
def _s3(bucket: str, prefix: str, endpoint: str | None) -> PayloadStore:
    """Kept for the next: to make a client of S3 takes longer than to use it."""
    from orchestrator.payload_stores.s3 import S3Payloads

    return S3Payloads(bucket, prefix, endpoint)
