"""What stands under a doc_id at this moment: the document, or the file that is on its way to it.

And which bytes are in quarantine: files that ended their reader or their worker as often as they may be tried.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from collections_app.access.document_access import OPEN, Codes
from collections_app.models import Collection, Document, IngestJob
from collections_app.uploads.options import IngestOptions

DOCUMENTS = """
SELECT doc_id, source_hash, state = 'archived', enabled, tags, metadata, chunk_policy,
       chunk_policy_stated, language_stated, access
FROM documents
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
"""

UNDER_WAY = """
SELECT DISTINCT ON (j.doc_id) j.doc_id, j.id, u.sha256, j.tags, j.metadata, j.policy, j.origin->>'language',
       j.origin->'access'
FROM ingest_jobs j
LEFT JOIN uploads u ON u.id = j.upload_id
WHERE j.collection_id = %(collection_id)s AND j.doc_id = ANY(%(doc_ids)s) AND j.kind IN ('file', 'fetch')
  AND j.state IN ('queued', 'running')
ORDER BY j.doc_id, j.created_at DESC, j.id DESC
"""

LAST_REQUESTED = """
SELECT DISTINCT ON (doc_id) doc_id, tags, metadata
FROM ingest_jobs
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND kind IN ('file', 'fetch')
  AND state = 'succeeded'
ORDER BY doc_id, created_at DESC, id DESC
"""

EXISTS = """
SELECT EXISTS (SELECT FROM documents WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s)
    OR EXISTS (SELECT FROM ingest_jobs WHERE collection_id = %(collection_id)s AND doc_id = %(doc_id)s
               AND kind IN ('file', 'fetch') AND state IN ('queued', 'running'))
"""

Labels = tuple[list[str], dict[str, Any]]

QUARANTINED = """
SELECT DISTINCT ON (u.sha256) u.sha256, j.id::text, j.doc_id, j.error
FROM ingest_jobs j JOIN uploads u ON u.id = j.upload_id
WHERE j.collection_id = %(collection_id)s AND j.state = 'quarantined'
ORDER BY u.sha256, j.finished_at DESC, j.id
"""


@dataclass(frozen=True, slots=True)
class DocumentState:
    """A document, or the newest job for it that is under way.

    sha256: of the bytes it was made from, or will be; "" when it did not come from a file. job_id: of the job.
    labels: tags and metadata that were asked for with these bytes, None when no job tells any more; then `own` counts.
    policy: of the document as a whole; of a job what it states.
    """

    sha256: str
    archived: bool
    enabled: bool
    job_id: str | None
    labels: Labels | None
    own: Labels
    policy: dict[str, Any] | None
    policy_stated: dict[str, Any] = field(default_factory=dict)
    language_stated: str = ""
    access: Codes = OPEN

    def has(self, sha256: str) -> bool:
        return bool(sha256) and self.sha256 == sha256

    @property
    def remark(self) -> str:
        return "" if self.enabled else "it stays disabled"

    @property
    def stated_metadata(self) -> dict[str, Any]:
        """What was said of the document when its bytes came, in its present values, without what the file says."""
        if self.labels is None:
            return {}
        return {name: self.own[1].get(name, value) for name, value in self.labels[1].items()}

    def differs(self, options: IngestOptions, resolve: Callable[[], dict[str, Any]]) -> str:
        """What besides the bytes is not as stated, in words; "" when all is. resolve: the policy that would hold."""
        tags, metadata = self.labels or self.own
        other = []
        if options.tags is not None and list(options.tags) != tags:
            other.append("tags")
        if options.metadata is not None and not self._has_metadata(options.metadata, metadata):
            other.append("metadata")
        if options.policy and self.policy != (options.policy if self.job_id else resolve()):
            other.append("chunk policy")
        if options.language is not None and options.language != self.language_stated:
            other.append("language")
        if options.access is not None and options.access != self.access:
            other.append("access")
        return " and ".join(other)

    def _has_metadata(self, stated: Mapping[str, Any], metadata: dict[str, Any]) -> bool:
        if self.labels:
            return stated == metadata
        return all(name in metadata and metadata[name] == value for name, value in stated.items())


def load_states(collection: Collection, doc_ids: Iterable[str]) -> dict[str, DocumentState]:
    """What stands under these ids; an id under which nothing stands is left out."""
    names = sorted(set(doc_ids))
    if not names:
        return {}
    values: dict[str, Any] = {"collection_id": collection.pk, "doc_ids": names}
    with connection.cursor() as cursor:
        cursor.execute(LAST_REQUESTED, values)
        asked = {doc_id: (tags, _object(metadata)) for doc_id, tags, metadata in cursor.fetchall()}
        cursor.execute(DOCUMENTS, values)
        rows = {row[0]: _document(row, asked.get(row[0])) for row in cursor.fetchall()}
        cursor.execute(UNDER_WAY, values)
        for doc_id, job_id, sha256, tags, metadata, policy, language, access in cursor.fetchall():
            before = rows.get(doc_id)  # what the job does not say stays as it is
            labels = (tags, _object(metadata))
            rows[doc_id] = DocumentState(
                sha256=sha256 or "",
                archived=before.archived if before else False,
                enabled=before.enabled if before else True,
                job_id=str(job_id),
                labels=labels,
                own=labels,
                policy=_object(policy) or None,
                language_stated=language if language is not None else before.language_stated if before else "",
                access=_codes(access) if access is not None else before.access if before else OPEN,
            )
    return rows


def document_exists(collection: Collection, doc_id: str) -> bool:
    """Whether there is such a document, or a job that brings it."""
    with connection.cursor() as cursor:
        cursor.execute(EXISTS, {"collection_id": collection.pk, "doc_id": doc_id})
        (result,) = cursor.fetchone()
    return bool(result)


def _document(row: Sequence[Any], labels: Labels | None) -> DocumentState:
    _, sha256, archived, enabled, tags, metadata, policy, explicit, language, access = row
    own = (tags, _object(metadata))
    policies = _object(policy), _object(explicit)
    return DocumentState(sha256, archived, enabled, None, labels, own, *policies, language, tuple(access))


def load_siblings(collection: Collection, doc_id: str) -> dict[str, DocumentState]:
    """The numbered copies "name (2).pdf", "name (3).pdf" of a doc_id that stand already, by number."""
    stem, suffix = posixpath.splitext(doc_id)
    pattern = re.compile(re.escape(stem) + r" \((\d{1,9})\)" + re.escape(suffix))
    known = Document.objects.filter(collection=collection, doc_id__startswith=f"{stem} (")
    coming = IngestJob.objects.active().filter(collection=collection, doc_id__startswith=f"{stem} (")
    names = {*known.values_list("doc_id", flat=True), *coming.values_list("doc_id", flat=True)}
    numbers = {name: int(match[1]) for name in names if (match := pattern.fullmatch(name))}
    standings = load_states(collection, numbers)
    return {name: standings[name] for name in sorted(standings, key=lambda name: numbers[name])}


def _codes(value: Any) -> Codes:
    """A JSON list as it comes without a model: a text, or parsed already; () for null."""
    return tuple(json.loads(value) if isinstance(value, str) else value or ())


def _object(value: Any) -> dict[str, Any]:
    """A JSON column as it comes without a model: a text, or parsed already."""
    return dict(json.loads(value) if isinstance(value, str) else value or {})


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The job that set these bytes aside last, and why."""

    job_id: str
    doc_id: str
    error: str

    @property
    def refusal(self) -> str:
        """What somebody is told who sends the same bytes again."""
        return (
            f"these bytes are in quarantine, {self.error}. To try them anyway, retry the job of {self.doc_id!r} on its "
            f'page or by PATCH /v1/jobs?job={self.job_id} with {{"state": "queued"}}'
        )


def load_quarantined(collection: Collection) -> Mapping[str, Quarantined]:
    """SHA-256 of the file -> what is known, for all of a collection. One query."""
    with connection.cursor() as cursor:
        cursor.execute(QUARANTINED, {"collection_id": collection.pk})
        return {sha256: Quarantined(*values) for sha256, *values in cursor.fetchall()}
