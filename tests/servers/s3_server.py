"""A small S3 for tests: one bucket in memory, path style, which believes no request whose signature is wrong.

It checks Signature Version 4 by itself, from the published rules: the canonical request, the string to sign,
the key derived from the secret, and the hash of the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, urlsplit

from serving import serving

ACCESS_KEY, SECRET_KEY = "AKIDEXAMPLE", "a-secret-key"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/s3/aws4_request,"
    r" SignedHeaders=([\w;-]+), Signature=(\w{64})"
)


@dataclass
class S3:
    url: str
    bucket: str
    objects: dict[str, bytes] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    """Statuses with which the next requests are answered."""
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def s3_server(bucket: str = "payloads") -> Iterator[S3]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    s3 = S3(f"http://127.0.0.1:{server.server_port}", bucket)
    server.s3 = s3  # type: ignore[attr-defined]
    with serving(server):
        yield s3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self._body()
        key = self._key(body)
        if key is not None:
            self._s3.objects[key] = body
            self._answer(200)

    def do_GET(self) -> None:
        key = self._key(self._body())
        if key is None:
            return
        if key in self._s3.objects:
            self._answer(200, self._s3.objects[key])
        else:
            self._fail(404, "NoSuchKey")

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def _s3(self) -> S3:
        s3: S3 = self.server.s3  # type: ignore[attr-defined]
        return s3

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _key(self, body: bytes) -> str | None:
        """The object that is meant; None when the request has been answered with a failure."""
        self._s3.requests.append((self.command, self.path))
        if self._s3.failures:
            self._fail(self._s3.failures.pop(0), "SlowDown")
        elif not self._is_signed(body):
            self._fail(403, "SignatureDoesNotMatch")
        else:
            bucket, _, key = urlsplit(self.path).path.removeprefix("/").partition("/")
            if bucket == self._s3.bucket and key:
                return key
            self._fail(404, "NoSuchBucket")
        return None

    def _is_signed(self, body: bytes) -> bool:
        found = _AUTHORIZATION.fullmatch(self.headers.get("Authorization", ""))
        if found is None or found[1] != ACCESS_KEY:
            return False
        _, day, region, signed, signature = found.groups()
        digest = self.headers.get("x-amz-content-sha256", "")
        if digest != hashlib.sha256(body).hexdigest() or "x-amz-content-sha256" not in signed.split(";"):
            return False
        path = urlsplit(self.path)
        headers = "".join(f"{name}:{' '.join(self.headers[name].split())}\n" for name in signed.split(";"))
        canonical = "\n".join(
            [self.command, quote(path.path, safe="/-_.~%"), path.query, headers, signed, digest]
        )
        scope = f"{day}/{region}/s3/aws4_request"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = "\n".join(["AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashed])
        key = f"AWS4{SECRET_KEY}".encode()
        for part in (day, region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.compare_digest(hmac.digest(key, to_sign.encode(), "sha256").hex(), signature)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
