"""Stores payloads in a bucket of S3 or of a compatible service: one object each, named `<prefix>/<id>`.

boto3 finds the credentials and the region: in AWS_ACCESS_KEY_ID and related variables, or in the role of the
machine. A lifecycle rule of the bucket must expire objects; a put renews an object, a get does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.application.errors import StoreError, Unavailable

_TEMPORARY_STATUSES = frozenset({429, 500, 502, 503, 504})


class S3Payloads:
    def __init__(self, bucket: str, prefix: str = "", endpoint: str | None = None) -> None:
        self._bucket, self._prefix = bucket, prefix
        self._client = _make_client(endpoint)

    def put(self, payload_id: str, data: bytes) -> None:
        with self._translate_errors():
            self._client.put_object(
                Bucket=self._bucket,
                Key=self._key(payload_id),
                Body=data,
                ContentType="application/octet-stream",
            )

    def get(self, payload_id: str) -> bytes | None:
        with self._translate_errors():
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._key(payload_id))
            except self._client.exceptions.NoSuchKey:
                return None
            data: bytes = found["Body"].read()
        return data

    def _key(self, payload_id: str) -> str:
        return f"{self._prefix}/{payload_id}" if self._prefix else payload_id

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from botocore import exceptions

        try:
            yield
        except exceptions.ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            kind = Unavailable if status in _TEMPORARY_STATUSES else StoreError
            raise kind(f"s3://{self._bucket}: {error}") from error
        except (
            exceptions.ConnectionError,
            exceptions.HTTPClientError,
            exceptions.IncompleteReadError,
        ) as error:
            raise Unavailable(f"s3://{self._bucket}: {error}") from error
        except exceptions.BotoCoreError as error:
            raise StoreError(f"s3://{self._bucket}: {error}") from error


def _make_client(endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise StoreError(
            "ORCHESTRATOR_PAYLOADS is an S3 bucket, but boto3 is not installed:"
            " pip install 'rq-orchestrator[s3]'"
        ) from error
    config = Config(
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": 3},
        s3={"addressing_style": "path"} if endpoint else {},
        request_checksum_calculation="when_required",  # other services do not support Amazon's new checksums
        response_checksum_validation="when_required",
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is not None:
        region = "us-east-1"  # requests must be signed for a region; other services have only one
    return boto3.session.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)
