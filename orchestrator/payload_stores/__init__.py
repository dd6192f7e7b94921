"""Payload stores: they keep values that are passed by reference (application/values/payload_refs.py).

    ORCHESTRATOR_PAYLOADS            redis (the default), file:///folder, or s3://bucket/prefix
    ORCHESTRATOR_PAYLOAD_TTL_S       how long a value is kept; default ORCHESTRATOR_RETENTION_S plus a day
    ORCHESTRATOR_PAYLOAD_MAX_BYTES   the maximum size of one value; 64 MiB by default
    ORCHESTRATOR_S3_ENDPOINT         the URL of an S3-compatible service other than Amazon's

Workers and clients read these variables, and must agree on the first. Coordinators never read payloads. The
work-horse of every step imports this module, so a store and its library are loaded only when they are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from orchestrator.application.errors import StoreError
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.payloads import RedisPayloads
from orchestrator.settings import MAX_PAYLOAD_BYTES, RETENTION_MARGIN_S, RETENTION_S, Settings

ADDRESS_VARIABLE = "ORCHESTRATOR_PAYLOADS"


@dataclass(frozen=True, slots=True)
class PayloadSettings:
    """The payload store to use, and its limits."""

    address: str = "redis"
    ttl_s: int = RETENTION_S + RETENTION_MARGIN_S
    max_bytes: int = MAX_PAYLOAD_BYTES
    s3_endpoint: str | None = None

    @classmethod
    def from_settings(cls, settings: Settings) -> PayloadSettings:
        payloads = cls(
            settings.payloads, settings.payload_ttl_s, settings.payload_max_bytes, settings.s3_endpoint
        )
        payloads.check()
        return payloads

    def check(self) -> None:
        """Raise StoreError if the address is invalid."""
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
        """Do the slow part of opening a store once, before work-horses are forked.

        Raises StoreError if a library is missing.
        """
        parts = urlsplit(self.address)
        if parts.scheme == "s3":
            _s3(parts.netloc, parts.path.strip("/"), self.s3_endpoint)

    def open(self, client: Client, keys: Keys, renews: bool = True) -> PayloadStore:
        """Open the store. The store in Redis uses the client and the keys; without `renews`, reading from it
        writes nothing."""
        parts = urlsplit(self.address)
        if parts.scheme == "file":
            from orchestrator.payload_stores.folder import DirectoryPayloads

            return DirectoryPayloads(unquote(parts.path), self.ttl_s)
        if parts.scheme == "s3":
            return _s3(parts.netloc, parts.path.strip("/"), self.s3_endpoint)
        return RedisPayloads(client, keys, self.ttl_s, renews)


@lru_cache(maxsize=8)
def _s3(bucket: str, prefix: str, endpoint: str | None) -> PayloadStore:
    """Make an S3 store, and keep it: making an S3 client takes longer than using it."""
    from orchestrator.payload_stores.s3 import S3Payloads

    return S3Payloads(bucket, prefix, endpoint)
