"""A prefix of a bucket as documents: one per object, kept in step by their ETags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collections_app.domain.identity import doc_id_from_key
from collections_app.errors import ServiceError
from collections_app.fetching import FetchError
from collections_app.fetching.buckets import BucketObject
from collections_app.models import Collection, IngestBatch
from collections_app.services.governance import audit
from collections_app.services.governance.document_access import Codes
from collections_app.services.sources.bucket_client import BucketPrefix, find_place, list_objects
from collections_app.services.sources.source_jobs import (
    Source,
    SourceItem,
    SourcePlan,
    fetched_under,
    plan_sources,
    submit_sources,
)
from ragd.errors import InvalidInput

PREFIX_MAX_CHARS = 1024
REFUSED_AT = {"not_found": 404, "not_allowed": 403, "address_refused": 403, "unknown_host": 422}


def submit_prefix(
    collection: Collection,
    bucket: str,
    prefix: str = "",
    *,
    endpoint: str = "",
    on_clash: str = "replace",
    delete_missing: bool = False,
    dry_run: bool = False,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    access: Codes | None = None,
    actor: audit.Actor = None,
) -> SourcePlan:
    """List the prefix, compare it with what is stored, and queue one job per new or changed object.

    doc_id is bucket/key. An object whose ETag and size are those that its document was made from is unchanged and not
    downloaded. delete_missing: documents that came from this prefix and are not there any more are deleted; an empty
    listing is refused then, because it would delete all of them. dry_run: only the plan. Raises InvalidInput,
    ServiceError (403, 404, 502 when the server refuses or fails).
    """
    source_item = SourceItem(on_clash, tags, metadata, policy, access)
    source_item.cleaned()
    if len(prefix) > PREFIX_MAX_CHARS:
        raise InvalidInput(f"prefix must have at most {PREFIX_MAX_CHARS} characters", field="prefix")
    bucket_prefix = find_place(bucket, endpoint)
    sources = [_source(bucket_prefix, row) for row in _list(bucket_prefix, prefix)]
    missing: list[str] = []
    if delete_missing:
        if not sources:
            raise InvalidInput(
                f"there is nothing under {prefix!r}, so delete_missing would delete every document that came from "
                "there. Check the prefix, or delete the documents themselves",
                field="delete_missing",
            )
        there = [source.address for source in sources]
        missing = fetched_under(
            collection, endpoint=bucket_prefix.endpoint, address=f"s3://{bucket_prefix.bucket}/{prefix}", but=there
        )
    if dry_run:
        return plan_sources(collection, sources, source_item, missing=missing)
    return submit_sources(
        collection,
        sources,
        source_item,
        kind=IngestBatch.Kind.S3,
        label=f"s3://{bucket_prefix.bucket}/{prefix}",
        missing=missing,
        actor=actor,
    )


def _list(bucket_prefix: BucketPrefix, prefix: str) -> list[BucketObject]:
    try:
        return list_objects(bucket_prefix, prefix)
    except FetchError as error:
        raise ServiceError(
            error.message, type=error.kind, status=REFUSED_AT.get(error.kind, 502), field="bucket"
        ) from None


def _source(bucket_prefix: BucketPrefix, row: BucketObject) -> Source:
    origin = {
        "type": "s3",
        "endpoint": bucket_prefix.endpoint,
        "bucket": bucket_prefix.bucket,
        "key": row.key,
        "etag": row.etag,
        "last_modified": row.last_modified,
    }
    try:
        doc_id, refused = doc_id_from_key(f"{bucket_prefix.bucket}/{row.key}"), None
    except InvalidInput as error:
        doc_id, refused = f"{bucket_prefix.bucket}/{row.key}"[:512], ("invalid_input", error.message)
    return Source(doc_id, origin, etag=row.etag, size=row.size, refused=refused)
