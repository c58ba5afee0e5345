"""S3-compatible servers: what a prefix of a bucket holds, and one object of it."""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error

from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.fetching import FetchError, FetchResult, Guard
from collections_app.fetching.client import CONNECT_MAX_S, PinnedPool
from collections_app.fetching.errors import too_large
from collections_app.models import FetchedSource
from collections_app.services.sources.web_client import Watcher, make_guard
from ragd.errors import InvalidInput

AMAZON = "https://s3.amazonaws.com"
READ_AT_ONCE = 262_144
OBJECTS_MAX = 20_000
LIST_MAX_S = 120.0
LIST_MAX_BYTES = 16_000_000  # of one answer; one names at most 1,000 objects
BUCKET_MAX_CHARS = 255
NOT_THERE = ("NoSuchBucket", "NoSuchKey", "ResourceNotFound")
CLOSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
CODE = re.compile(r"Response code: (\d+)")
PASSING = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeTooSkewed")


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """A bucket on a server. endpoint: http(s)://host[:port]; own: whether it is the server's configured one."""

    endpoint: str
    bucket: str
    own: bool


@dataclass(frozen=True, slots=True)
class BucketObject:
    """One object of a listing. size in bytes; etag without quotes; last_modified in ISO 8601, "" when not told."""

    key: str
    size: int
    etag: str
    last_modified: str


class _BoundedPool(PinnedPool):
    """An answer that is read whole, as lists are, has an end: in bytes, and all of them together in time."""

    def __init__(self, guard: Guard | None, **values: Any) -> None:
        super().__init__(guard, **values)
        self.ends_at = time.monotonic() + LIST_MAX_S

    def urlopen(  # type: ignore[override]  # as its own superclass has it
        self, method: str, url: str, redirect: bool = True, *, preload_content: bool = True, **values: Any
    ) -> urllib3.BaseHTTPResponse:
        if not preload_content:
            return super().urlopen(method, url, redirect, preload_content=False, **values)
        self._check_time()
        answer = super().urlopen(method, url, redirect, preload_content=False, **values)
        body = bytearray()
        try:
            while part := answer.read1(READ_AT_ONCE, decode_content=True):
                body += part
                self._check_time()
                if len(body) > LIST_MAX_BYTES:
                    raise FetchError("server_failed", f"the server's list has more than {LIST_MAX_BYTES:,} bytes")
        finally:
            answer.close()
            answer.release_conn()
        return urllib3.HTTPResponse(
            bytes(body), answer.headers, answer.status, reason=answer.reason, decode_content=False
        )

    def _check_time(self) -> None:
        if time.monotonic() > self.ends_at:
            raise FetchError(
                "timeout", f"the server did not tell what it has within {LIST_MAX_S:g} s; take a longer prefix"
            )


def find_place(bucket: str, endpoint: str = "") -> BucketPrefix:
    """The bucket that is meant. Raises InvalidInput, and ServiceError 403 for one that this server does not give out.

    The server's keys are used at its own endpoint only (RAGD_S3_ENDPOINT, else Amazon's); any other is read without.
    """
    cleaned = bucket.strip()
    if not cleaned or len(cleaned) > BUCKET_MAX_CHARS or "/" in cleaned:
        raise InvalidInput("bucket must be the name of a bucket, without s3:// and without a prefix", field="bucket")
    own = (settings.RAGD_S3_ENDPOINT or AMAZON).rstrip("/")
    chosen = _clean_endpoint(endpoint) if endpoint.strip() else own
    allowed = settings.RAGD_S3_BUCKETS
    if chosen == own and allowed and cleaned not in allowed:
        raise ServiceError(
            f"the bucket {cleaned!r} is not among those that may be read here; an administrator adds it to "
            "RAGD_S3_BUCKETS",
            type="forbidden",
            status=403,
            field="bucket",
        )
    return BucketPrefix(chosen, cleaned, chosen == own)


def _clean_endpoint(text: str) -> str:
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.username:
        raise InvalidInput(
            f"endpoint must be the address of a server, such as https://s3.example.org, not {text[:200]!r}",
            field="endpoint",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def list_objects(bucket_prefix: BucketPrefix, prefix: str) -> list[BucketObject]:
    """What lies under a prefix, by key, without folders; page after page. At most 20,000, else InvalidInput.

    Raises FetchError, which says what to do, when the server refuses or cannot be reached.
    """
    with _told(bucket_prefix):
        rows = _client(bucket_prefix).list_objects(bucket_prefix.bucket, prefix=prefix or None, recursive=True)
        result = [
            BucketObject(
                key=str(row.object_name),
                size=int(row.size or 0),
                etag=(row.etag or "").strip('"'),
                last_modified=row.last_modified.isoformat() if row.last_modified else "",
            )
            for row in islice(rows, OBJECTS_MAX + 1)
            if row.object_name and not str(row.object_name).endswith("/")
        ]
    if len(result) > OBJECTS_MAX:
        raise InvalidInput(
            f"there are more than {OBJECTS_MAX:,} objects under {prefix!r}; take one part after the other",
            field="prefix",
        )
    return result


def read_object(origin: Mapping[str, Any], known: FetchedSource | None, watcher: Watcher) -> FetchResult:
    """The object of a job's origin, or that it is still what `known` says. Raises FetchError."""
    name = posixpath.basename(origin["key"]) or origin["key"]
    etag = origin.get("etag", "")
    if known is not None and etag and known.etag == etag:
        return FetchResult(name, None, sha256=known.sha256, etag=etag, last_modified=known.last_modified)
    try:
        bucket_prefix = find_place(origin["bucket"], origin["endpoint"])
    except (InvalidInput, ServiceError) as error:
        raise FetchError("not_allowed", error.message) from None
    with _told(bucket_prefix, origin["key"]):
        response = _client(bucket_prefix).get_object(bucket_prefix.bucket, origin["key"])
        try:
            content = _read_body(response, watcher)
        finally:
            response.close()
            response.release_conn()
    return FetchResult(
        name,
        content,
        etag=response.headers.get("ETag", etag).strip('"')[:500],
        last_modified=origin.get("last_modified", ""),
    )


def _read_body(response: Any, watcher: Watcher) -> bytes:
    limit = settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE
    total = int(response.headers.get("Content-Length") or 0)
    if total > limit:
        raise too_large(limit)
    ends_at = time.monotonic() + settings.RAGD_FETCH_TIMEOUT_S
    body = bytearray()
    while part := response.read1(READ_AT_ONCE, decode_content=False):
        body += part
        if len(body) > limit:
            raise too_large(limit)
        if time.monotonic() > ends_at:
            raise FetchError(
                "timeout",
                f"it did not come whole within {settings.RAGD_FETCH_TIMEOUT_S:g} s (RAGD_FETCH_TIMEOUT_S)",
                retryable=True,
            )
        watcher.advance(len(body), total)
    if not body:
        raise FetchError("empty_content", "the object is empty")
    return bytes(body)


def _client(bucket_prefix: BucketPrefix) -> Minio:
    parts = urlsplit(bucket_prefix.endpoint)
    pool = _BoundedPool(
        None if bucket_prefix.own else make_guard(),
        timeout=urllib3.Timeout(connect=CONNECT_MAX_S, read=settings.RAGD_FETCH_TIMEOUT_S),
        retries=urllib3.Retry(total=1, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
        maxsize=1,
    )
    keys = bucket_prefix.own and bool(settings.AWS_ACCESS_KEY_ID)
    return Minio(
        parts.netloc,
        access_key=settings.AWS_ACCESS_KEY_ID if keys else None,
        secret_key=settings.AWS_SECRET_ACCESS_KEY if keys else None,
        session_token=(settings.AWS_SESSION_TOKEN or None) if keys else None,
        secure=parts.scheme == "https",
        region=(settings.AWS_REGION or None) if bucket_prefix.own else None,
        http_client=pool,
    )


@contextmanager
def _told(place: BucketPrefix, key: str = "") -> Iterator[None]:
    """Whatever the client raises, as a FetchError that says what to do."""
    at = f"the bucket {place.bucket!r} at {place.endpoint}"
    try:
        yield
    except S3Error as error:
        raise _explain(str(error.code), at, key) from None
    except InvalidResponseError as error:
        code = CODE.search(str(error))
        if code and code[1] in ("401", "403"):
            raise _explain("AccessDenied", at, key) from None
        raise _no_answer(at, error) from None
    except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
        raise _no_answer(at, error) from None
    except ValueError as error:  # a name that no bucket can have
        raise InvalidInput(f"bucket: {error}", field="bucket") from None


def _no_answer(at: str, error: Exception) -> FetchError:
    silent = isinstance(error, (urllib3.exceptions.HTTPError, OSError))
    message = "does not answer" if silent else "gave no valid answer"
    return FetchError("unreachable", f"{at} {message}; check the endpoint, or try again later", retryable=True)


def _explain(code: str, at: str, key: str) -> FetchError:
    if code in NOT_THERE:
        what = f"the object {key!r}" if key and code != "NoSuchBucket" else "what was asked for"
        return FetchError("not_found", f"{what} is not in {at} ({code}); check the names")
    if code in CLOSED:
        return FetchError(
            "not_allowed",
            f"{at} does not let this server in ({code}); an administrator sets AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY to a key that may list and read it. They are used at RAGD_S3_ENDPOINT only",
        )
    return FetchError("server_failed", f"{at} answered {code}; it may work later", retryable=code in PASSING)
