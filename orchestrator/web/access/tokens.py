"""The file of tokens: one user per line, with its role and its token.

    # user      role          token
    ada         operate       <at least 24 characters>
    wall        read          <at least 24 characters>
    shop        start:order   <at least 24 characters>

A user `start:NAME` may only start the workflow NAME, by POST /api/v1/hooks/NAME. The file is read again when
it changes, so a token can be replaced without a restart. `orchestrator web --new-token` prints a token.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from orchestrator.application.errors import OrchestratorError
from orchestrator.web.access.users import Role, User

logger = logging.getLogger(__name__)

MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 24, 512
_TOKEN = re.compile(rf"[!-~]{{{MIN_TOKEN_CHARS},{MAX_TOKEN_CHARS}}}")
_USER = re.compile(r"[\w.@+-]{1,64}")
_ROLES = {"read": Role.READ, "operate": Role.OPERATE}


class BadTokenFile(OrchestratorError):
    """The file of tokens cannot be used. The message names the line, and never a token."""

    exit_code = 2


def new_token() -> str:
    return secrets.token_urlsafe(32)


class TokenFile:
    """The users of a file, by the digests of their tokens."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._reported = ""
        self._users: dict[bytes, User] = {}
        self._read(self._stat())

    def find(self, token: str) -> User | None:
        """The user of a token. Every stored digest is compared, in constant time."""
        self._read_again_if_changed()
        digest, found = digest_of(token), None
        for stored, user in self._users.items():
            if hmac.compare_digest(stored, digest):
                found = user
        return found

    def digests(self) -> Iterator[tuple[bytes, User]]:
        self._read_again_if_changed()
        yield from self._users.items()

    def _read_again_if_changed(self) -> None:
        try:
            found = self._stat()
            if _stamp_of(found) != self._stamp:
                self._read(found)
                self._reported = ""
        except BadTokenFile as error:  # the users of before stay until the file is correct
            if str(error) != self._reported:
                logger.error("the changed file of tokens is not used: %s", error)
            self._reported = str(error)

    def _read(self, found: os.stat_result) -> None:
        self._stamp = _stamp_of(found)  # also of a file with mistakes
        try:
            text = self._path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        self._users = dict(_read_lines(text, str(self._path)))
        if found.st_mode & stat.S_IROTH:
            logger.warning("every user of this host can read the file of tokens: chmod o-r %s", self._path)

    def _stat(self) -> os.stat_result:
        try:
            return self._path.stat()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> BadTokenFile:
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8 text"
        else:
            reason = getattr(error, "strerror", None) or str(error)
        return BadTokenFile(f"cannot read the file of tokens {str(self._path)!r}: {reason}")


def _stamp_of(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def digest_of(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read_lines(text: str, source: str) -> Iterator[tuple[bytes, User]]:
    seen: set[bytes] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            digest, user = _read_line(line)
        except ValueError as error:
            raise BadTokenFile(f"{source}:{number}: {error}") from None
        if digest in seen:
            raise BadTokenFile(f"{source}:{number}: this token stands on an earlier line too")
        seen.add(digest)
        yield digest, user
    if not seen:
        raise BadTokenFile(f"{source}: there is no token; write lines such as: ada operate TOKEN")


def _read_line(line: str) -> tuple[bytes, User]:
    # A message has nothing of the line: if its columns are swapped, a token must not get into a log.
    parts = line.split()
    if len(parts) != 3:
        raise ValueError("write a user, a role and a token, separated by spaces")
    name, role, token = parts
    if _USER.fullmatch(name) is None:
        raise ValueError("a user has 1 to 64 letters, digits, '_', '.', '@', '+' or '-'")
    user = _make_user(name, role)
    if _TOKEN.fullmatch(token) is None:
        raise ValueError(
            f"a token has {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} characters of ASCII;"
            " orchestrator web --new-token prints one"
        )
    return digest_of(token), user


def _make_user(name: str, role: str) -> User:
    if role in _ROLES:
        return User(name, _ROLES[role])
    kind, _, workflow = role.partition(":")
    if kind == "start" and workflow:
        return User(name, Role.START, workflow)
    raise ValueError("the role must be read, operate or start:WORKFLOW")
