"""What this server may read: buckets, its own with its keys and others without or with keys of their own, pages and
folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from collections_app.models import FetchedSource
from collections_app.sources.kinds.files import S3Source
from collections_app.sources.kinds.protocol import Item, Reach
from collections_app.sources.web_client import Unwatched, Watcher, make_guard, read_page
from collections_app.uploads.options import Origin
from ragd.errors import InvalidInput
from ragd.readers.fetching import FetchError, FetchResult
from ragd.readers.fetching.buckets import Bucket, BucketKeys

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


def make_reach(watcher: Watcher | None = None) -> Reach:
    """What sources may reach by the settings of this server. watcher: told while something is read; it may stop."""
    told = watcher or Unwatched()
    return Reach(
        guard=make_guard(),
        max_bytes=settings.RAGD_MAX_DOCUMENT_MB * MEGABYTE,
        timeout_s=settings.RAGD_FETCH_TIMEOUT_S,
        read_page=lambda url: read_page(url, None, told),
        open_bucket=lambda endpoint, bucket, keys: open_bucket(find_place(bucket, endpoint), keys),
        folders=tuple(Path(each) for each in settings.RAGD_SOURCE_FOLDERS),
        advance=told.advance,
    )


def open_prefix(endpoint: str, address: str, watcher: Watcher) -> S3Source:
    """Open what lies under s3://bucket/prefix of a server; this server's keys are used at its own endpoint only."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    values = {"bucket": bucket, "prefix": prefix, "endpoint": endpoint, "access_key": "", "include": ()}
    return S3Source(values, "", make_reach(watcher))


def read_object(origin: Origin, known: FetchedSource | None, watcher: Watcher) -> FetchResult:
    """The object of a job's origin, or that it is still what `known` says. Raises FetchError."""
    key = origin.address.removeprefix("s3://").partition("/")[2]
    if known is not None and origin.version and known.etag == origin.version:
        return FetchResult(key, None, sha256=known.sha256, etag=known.etag)
    try:
        file = open_prefix(origin.endpoint, origin.address, watcher).fetch(Item(key))
    except (InvalidInput, ServiceError) as error:
        raise FetchError("not_allowed", error.message) from None
    return FetchResult(file.name, file.content, etag=origin.version)
