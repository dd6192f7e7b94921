"""The cookie of a login. It is signed with the token of the user, so it ends with that token.

No session is stored: the cookie names its end, and is valid for whichever token its signature fits. It works
after a restart, and in every process that reads the same file of tokens.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256

from orchestrator.web.access.tokens import TokenFile, digest_of
from orchestrator.web.access.users import User

COOKIE = "orchestrator_session"
MAX_AGE_S = 12 * 3_600


def make_cookie(token: str, now_s: float) -> str:
    """The cookie of a login with this token."""
    until = str(int(now_s) + MAX_AGE_S)
    return f"{until}.{_sign(digest_of(token), until)}"


def find_user(cookie: str, tokens: TokenFile, now_s: float) -> User | None:
    """The user whose token has signed this cookie; None if there is none, or if the login has ended."""
    until, _, signature = cookie.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 16 and int(until) > now_s):
        return None
    found = None
    for digest, user in tokens.digests():
        if hmac.compare_digest(_sign(digest, until).encode(), signature.encode("utf-8", "replace")):
            found = user
    return found


def _sign(digest: bytes, until: str) -> str:
    # The digest of a token is a secret of the server; a cookie tells nothing about it.
    key = hmac.digest(digest, b"orchestrator session", sha256)
    return urlsafe_b64encode(hmac.digest(key, until.encode(), sha256)).decode().rstrip("=")
