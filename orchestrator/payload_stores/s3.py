"""Payloads in a bucket of S3, or of another service that speaks it: one object each, under `<prefix>/<id>`.

Credentials and the region come from where boto3 finds them: AWS_ACCESS_KEY_ID and its kin, or the role of the
machine. When an object expires is for a lifecycle rule of the bucket to say; a put renews it, a get does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.application.errors import StoreError, Unavailable

_PASSING = frozenset({429, 500, 502, 503, 504})


class S3Payloads:
    def __init__(self, bucket: str, prefix: str = "", endpoint: str | None = None) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._client = _client(endpoint)

    def put(self, payload_id: str, data: bytes) -> None:
        with self._translated():
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._key(payload_id),
                Body=data,
                ContentType="application/octet-stream",
            )

    def get(self, payload_id: str) -> bytes | None:
        with self._translated():
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(payload_id))
            except self._client.exceptions.NoSuchKey:
                return None
            data: bytes = found["Body"].read()
        return data

    def _key(self, payload_id: str) -> str:
        return f"{self._prefix}/{payload_id}" if self._prefix else payload_id

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from botocore import exceptions as raised

        try:
            yield
        except raised.ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            kind = Unavailable if status in _PASSING else StoreError
            raise kind(f"s3://{self._bucket}: {error}") from error
        except (raised.ConnectionError, raised.HTTPClientError, raised.IncompleteReadError) as error:
            raise Unavailable(f"s3://{self._bucket}: {error}") from error
        except raised.BotoCoreError as error:
            raise StoreError(f"s3://{self._bucket}: {error}") from error


def _client(endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise StoreError(
            "ORCHESTRATOR_PAYLOADS names a bucket of S3, and boto3 is not installed here:"
            " pip install 'rq-orchestrator[s3]'"
        ) from error
    config = Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",  # other services than Amazon's do not know the new ones
        response_checksum_validation="when_required",
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is not None:
        region = "us-east-1"  # it must sign for some region, and others have only one
    return boto3.session.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)
