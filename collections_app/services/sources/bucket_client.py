"""Buckets that this server may read: its own with its keys, others without or with keys of their own."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.fetching import FetchError, FetchResult
from collections_app.fetching.buckets import Bucket, BucketKeys, BucketObject
from collections_app.models import FetchedSource
from collections_app.services.sources.web_client import Watcher, make_guard
from ragd.errors import InvalidInput

AMAZON = "https://s3.amazonaws.com"
BUCKET_MAX_CHARS = 255


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """A bucket on a server. endpoint: http(s)://host[:port]; own: whether it is the server's configured one."""

    endpoint: str
    bucket: str
    own: bool


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


def open_bucket(place: BucketPrefix, keys: BucketKeys | None = None) -> Bucket:
    """keys: None for the server's at its own endpoint, and for none elsewhere."""
    if keys is None:
        own = BucketKeys(settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY, settings.AWS_SESSION_TOKEN)
        keys = own if place.own else BucketKeys()
    return Bucket(
        place.endpoint,
        place.bucket,
        guard=None if place.own else make_guard(),
        keys=keys,
        region=settings.AWS_REGION if place.own else "",
        timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
    )


def list_objects(bucket_prefix: BucketPrefix, prefix: str) -> list[BucketObject]:
    """What lies under a prefix, as `Bucket.list_objects` gives it."""
    return open_bucket(bucket_prefix).list_objects(prefix)


def read_object(origin: Mapping[str, Any], known: FetchedSource | None, watcher: Watcher) -> FetchResult:
    """The object of a job's origin, or that it is still what `known` says. Raises FetchError."""
    name = posixpath.basename(origin["key"]) or origin["key"]
    etag = origin.get("etag", "")
    if known is not None and etag and known.etag == etag:
        return FetchResult(name, None, sha256=known.sha256, etag=etag, last_modified=known.last_modified)
    try:
        place = find_place(origin["bucket"], origin["endpoint"])
    except (InvalidInput, ServiceError) as error:
        raise FetchError("not_allowed", error.message) from None
    limit = settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE
    content, headers = open_bucket(place).read(origin["key"], limit, watcher.advance)
    return FetchResult(
        name,
        content,
        etag=headers.get("ETag", etag).strip('"')[:500],
        last_modified=origin.get("last_modified", ""),
    )
