"""Tokens of dispatches: a result counts only with the token of its dispatch.

    <dispatch id>.<secret>     the id names the dispatch in job ids and leases, where others may read it;
                               the secret is in the record, in the data of the job and in its events
    <nonce>-<number>           without a secret: in earlier releases, beside a coordinator of an earlier
                               release, and where no other user can read jobs (local backends)

The id tells nothing about the secret, and nothing about other dispatches of the same decision.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

_SEPARATOR = "."
_ID_LENGTH, _BYTES = 12, 18


def secret_token(seed: str) -> str:
    """The token that follows from a seed, which must be secret itself."""
    text = urlsafe_b64encode(sha256(seed.encode()).digest()[:_BYTES]).decode()
    return f"{text[:_ID_LENGTH]}{_SEPARATOR}{text[_ID_LENGTH:]}"


def dispatch_id(token: str) -> str:
    """The part of a token that others may know; the whole token if it has no secret."""
    return token.partition(_SEPARATOR)[0]


def has_secret(token: str) -> bool:
    """Whether a token has more than its public part."""
    return _SEPARATOR in token
