"""The planner: what files, addresses, objects and items of sources would do, one line per document, before anything is
written.

It looks at what stands under a doc_id at this moment: the document, or the file that is on its way to it. And which
bytes are in quarantine: files that ended their reader or their worker as often as they may be tried.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import F, Q, QuerySet

from collections_app.access.context import Access, current_access
from collections_app.access.document_access import OPEN, Codes, hidden_from, hidden_reason
from collections_app.chunks.policies import policy_of
from collections_app.documents.stored_documents import owners_of
from collections_app.domain.formats import MEGABYTE
from collections_app.models import Collection, Document, FetchedSource, IngestBatch, IngestJob
from collections_app.uploads.options import NOTHING_STATED, SYNC, URL, IngestOptions, Origin, check_clash
from ragd.errors import InvalidInput
from ragd.identity import DOC_ID_MAX_CHARS, check_doc_id, doc_id_from_name

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


ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
SHA256 = re.compile(r"[0-9a-f]{64}")

FIRST_NUMBERS = (2, 3, 4)
STATUSES = ("new", "refetch", "changed", "unchanged", "skipped", "renamed", "rejected", "archive", "deleted")
SENT = ("new", "refetch", "changed", "renamed", "archive")

UPLOADED = Origin()
CAME_FROM_FILES = ~Q(source_hash="") & ~Q(source__contains="://")

IsFree = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it is offered, or one that is to be fetched. doc_id "": made from the name.

    sha256: in hex, "" when unknown. size: in bytes, None when unknown. on_clash: for this one; "": what holds for all.
    origin: where it comes from. source: what its document names as its source; "": the address of the origin, else
    the name. title: "": what the file says. error_type, error: why it cannot be taken.
    """

    doc_id: str
    sha256: str = ""
    size: int | None = None
    name: str = ""
    on_clash: str = ""
    origin: Origin = UPLOADED
    source: str = ""
    title: str = ""
    error_type: str = ""
    error: str = ""


class RefusedError(Exception):
    """Why one file is not taken; it holds up no other."""

    def __init__(self, type: str, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


def numbered(doc_id: str, number: int) -> str:
    """ "a/b.pdf" and 2 make "a/b (2).pdf"; a name that is too long for it loses its end before the number."""
    stem, suffix = posixpath.splitext(doc_id)
    mark = f" ({number}){suffix}"
    return stem[: DOC_ID_MAX_CHARS - len(mark)].rstrip() + mark


def check_size(entry: Entry) -> None:
    """RefusedError for a file that is empty or larger than documents may be, or cannot be taken for another reason."""
    limit = settings.RAGD_MAX_DOCUMENT_MB
    name = entry.name or entry.doc_id
    if entry.error:
        raise RefusedError(entry.error_type, entry.error)
    if entry.size is None:
        return
    if entry.size > limit * MEGABYTE:
        raise RefusedError(
            "too_large",
            f"{name} has {entry.size / MEGABYTE:.1f} MB; at most {limit} MB are taken. "
            "Split it, or raise RAGD_MAX_DOCUMENT_MB.",
        )
    if not entry.size:
        raise RefusedError("empty_content", f"{name} is empty; upload a file with some content")


def is_refused(entry: Entry) -> bool:
    """Whether the size or the name alone rules it out, so that its bytes need not be read."""
    try:
        name_document(entry)
        check_size(entry)
    except RefusedError:
        return True
    return False


def name_document(entry: Entry) -> str:
    """The doc_id that an entry asks for, or a RefusedError when it is not acceptable."""
    try:
        return check_doc_id(entry.doc_id) if entry.doc_id else doc_id_from_name(entry.name)
    except InvalidInput as error:
        raise RefusedError("invalid_input", error.message) from None


def wanted_id(entry: Entry) -> str:
    """The doc_id that an entry asks for, "" when it is not acceptable."""
    try:
        return name_document(entry)
    except RefusedError:
        return ""


def check_entry(entry: Entry) -> None:
    if entry.on_clash:
        check_clash(entry.on_clash)
    if entry.sha256 and not SHA256.fullmatch(entry.sha256):
        raise InvalidInput(
            f"sha256 must be 64 hexadecimal digits in lower case, not {entry.sha256[:80]!r}", field="sha256"
        )


def is_archive_name(name: str) -> bool:
    return name.lower().endswith(ARCHIVE_SUFFIXES)


def folder_of(doc_id: str) -> str:
    """Where the members of an archive come: beside it."""
    folder = doc_id.rpartition("/")[0]
    return f"{folder}/" if folder else ""


def clean_prefix(prefix: str) -> str:
    """A folder as the beginning of doc_ids, with a slash at its end; "" for everything. Raises InvalidInput."""
    stored = prefix.strip("/ ")
    return f"{check_doc_id(stored)}/" if stored else ""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """What becomes of one file, or of one document that is missing among them.

    status: one of STATUSES. asked: the doc_id that was asked for; doc_id: the one that it gets. reason: in words;
    error_type: the stable word of a rejection. job_id: of the job that brings it. of: the archive of a member.
    """

    name: str
    asked: str
    doc_id: str
    status: str
    reason: str = ""
    error_type: str = ""
    size: int = 0
    job_id: str | None = None
    of: str = ""

    @property
    def is_sent(self) -> bool:
        return self.status in SENT

    def rejected(self, error_type: str, reason: str) -> PlanLine:
        return replace(self, status="rejected", error_type=error_type, reason=reason)


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """lines: in the order of the entries, then what would be deleted, by doc_id. batch: None before it is submitted."""

    lines: list[PlanLine]
    batch: IngestBatch | None = None

    @property
    def totals(self) -> dict[str, int]:
        """Lines per status; every status is there."""
        counts = Counter(line.status for line in self.lines)
        return {status: counts[status] for status in STATUSES}

    @property
    def to_send(self) -> list[PlanLine]:
        """The files whose bytes are needed."""
        return [line for line in self.lines if line.is_sent]

    @property
    def deletions(self) -> list[str]:
        return [line.doc_id for line in self.lines if line.status == "deleted"]


def plan_uploads(
    collection: Collection,
    entries: Sequence[Entry],
    options: IngestOptions = NOTHING_STATED,
    *,
    delete_missing: bool = False,
    prefix: str = "",
) -> UploadPlan:
    """What these files would do to the collection; nothing is written.

    Unchanged is what has the bytes that the document was made from, or that a job under way brings, enabled or not;
    what `options` state must be the same too. delete_missing: adds the documents under `prefix` (a folder; "" is
    everything) that came from files and are not named. Raises InvalidInput for a wrong choice or hash, and for
    delete_missing without any entry: an empty folder would delete everything.
    """
    for entry in entries:
        check_entry(entry)
    if delete_missing and not entries:
        raise InvalidInput(
            "delete_missing needs at least one file: an empty list would delete every document of the folder. "
            "Check the folder, or delete the documents themselves",
            field="delete_missing",
        )
    lines = plan_entries(collection, entries, options)
    if delete_missing:
        named = {name for line in lines for name in (line.asked, line.doc_id)}
        of_folder = CAME_FROM_FILES & Q(doc_id__startswith=clean_prefix(prefix))
        lines += find_missing(collection, of_folder & ~Q(doc_id__in=named), named)
    return UploadPlan(lines)


def plan_entries(collection: Collection, entries: Sequence[Entry], options: IngestOptions) -> list[PlanLine]:
    """One line per entry, in order. Raises InvalidInput for wrong options."""
    planner = Planner(collection, options.cleaned())
    planner.load(entries)
    return [planner.decide(entry) for entry in entries]


class Planner:
    """Decides one entry after the other, each with what those before it did.

    A file is compared by its bytes. What is to be fetched is unchanged when the document was made from it in the
    version that a listing tells; without a version, an address that the document came from is fetched again. An item
    of a source replaces only what that source brought.
    """

    def __init__(
        self,
        collection: Collection,
        options: IngestOptions,
        *,
        is_free: IsFree | None = None,
        asker: Access | None = None,
    ) -> None:
        """options: cleaned. is_free: whether a new name may be taken, asked last; a submission takes a lock on it
        there. asker: who sends the files; None: who asks."""
        self.asker = asker or current_access()
        self.collection = collection
        self.options = options
        self._is_free = is_free or (lambda _: True)
        self._standings: dict[str, DocumentState] = {}
        self._siblings: dict[str, DocumentState] | None = None
        self._hidden: set[str] = set()
        self._fetched: dict[str, FetchedSource] = {}
        self._under_way: dict[str, Origin] = {}  # doc_id -> the origin of the newest job that fetches it
        self._taken: dict[str, str] = {}  # doc_id -> sha256 of a file of this request
        self._quarantined: Mapping[str, Quarantined] | None = None

    def load(self, entries: Iterable[Entry]) -> None:
        """Read what has the IDs of these entries, and which of that the one who sends them may not read."""
        wanted = {doc_id: entry for entry in entries if (doc_id := wanted_id(entry))}
        self._standings |= load_states(self.collection, wanted)
        self._hidden |= hidden_from(self.asker, self.collection, list(wanted))
        self._load_sources([doc_id for doc_id, entry in wanted.items() if entry.origin.is_fetched])

    def _load_sources(self, doc_ids: Sequence[str]) -> None:
        """Read where these documents came from, and what the jobs that fetch them ask."""
        if doc_ids:
            rows: QuerySet[Any] = FetchedSource.objects.filter(document__collection=self.collection)
            rows = rows.filter(document__doc_id__in=doc_ids).annotate(doc_id=F("document__doc_id"))
            self._fetched |= {row.doc_id: row for row in rows}
            jobs = IngestJob.objects.active().filter(collection=self.collection, kind=IngestJob.Kind.FETCH)
            in_order = jobs.filter(doc_id__in=doc_ids).order_by("created_at", "pk")
            self._under_way |= dict(in_order.values_list("doc_id", "origin"))

    def decide(self, entry: Entry, *, is_archive: bool | None = None) -> PlanLine:
        """The line of one entry. is_archive: what its bytes are; None: the name of a file tells."""
        name = entry.name or entry.doc_id
        try:
            check_size(entry)
            doc_id = name_document(entry)
        except RefusedError as refusal:
            doc_id = wanted_id(entry) or entry.doc_id
            return PlanLine(name, doc_id, doc_id, "rejected", refusal.message, refusal.type, entry.size or 0)
        line = PlanLine(name, doc_id, doc_id, "new", size=entry.size or 0)
        if doc_id in self._hidden:
            return line.rejected("restricted", hidden_reason(doc_id))
        if is_archive if is_archive is not None else is_archive_name(name) and not entry.origin.is_fetched:
            return self._archive(line)
        how = entry.on_clash or self.options.on_clash
        line = self._repeated(line, entry, how) or self._compare(line, entry, how)
        if line.is_sent and (held := self._find_quarantined(entry.sha256)):
            line = line.rejected("quarantined", held.refusal)
        if line.is_sent:
            self._taken[line.doc_id] = entry.sha256
        elif line.status != "rejected":
            self._taken.setdefault(line.doc_id, entry.sha256)
        return line

    def labels_of(self, line: PlanLine) -> Labels:
        """The tags and metadata that a job for this line is to have: those stated, or those of the document."""
        present = self._standings.get(line.doc_id)
        options = self.options
        tags = options.tags if options.tags is not None else present.own[0] if present else []
        metadata = options.metadata if options.metadata is not None else present.stated_metadata if present else {}
        return list(tags), dict(metadata)

    def _find_quarantined(self, sha256: str) -> Quarantined | None:
        if self._quarantined is None:
            self._quarantined = load_quarantined(self.collection)
        return self._quarantined.get(sha256)

    def _archive(self, line: PlanLine) -> PlanLine:
        if line.doc_id in self._taken:
            return line.rejected("duplicate_name", _repeated_ids(line.doc_id))
        self._taken[line.doc_id] = ""
        return replace(line, status="archive", reason="extracted; each file is compared")

    def _repeated(self, line: PlanLine, entry: Entry, how: str) -> PlanLine | None:
        """A second entry of the same name in one request."""
        if line.doc_id not in self._taken:
            return None
        if entry.sha256 and self._taken[line.doc_id] == entry.sha256:
            return replace(line, status="unchanged", reason="duplicate in this upload")
        if how == "keep_both":
            return self._number(line, entry, how)
        return line.rejected("duplicate_name", _repeated_ids(line.doc_id))

    def _compare(self, line: PlanLine, entry: Entry, how: str) -> PlanLine:
        present = self._standings.get(line.doc_id)
        if present is None:
            return line
        same_source, same_version = self._recognize(entry, line.doc_id, present)
        if entry.origin.type == SYNC and not same_source:
            return line.rejected("conflict", self._foreign_reason(entry, present))
        if present.archived:
            reason = f"{line.doc_id!r} is archived and read-only; unarchive it first, or use another document ID"
            return line.rejected("archived", reason)
        if present.has(entry.sha256) or same_version:
            why = self._difference(present)
            if not why:
                reason = "it is being processed" if present.job_id else present.remark
                return replace(line, status="unchanged", reason=reason, job_id=present.job_id)
            if how == "replace":
                return replace(line, status="changed", reason=f"same content, different {why}")
            return replace(line, status="skipped", reason=f"same content with different {why}")
        if how == "skip":
            return replace(line, status="skipped", reason="exists with different content")
        if how == "keep_both" and not same_source:
            return self._number(line, entry, how)
        if same_source and entry.origin.type == URL:
            return replace(line, status="refetch", reason="fetched if changed")
        return replace(line, status="changed")

    def _recognize(self, entry: Entry, doc_id: str, present: DocumentState) -> tuple[bool, bool]:
        """(the document comes from the origin of the entry, and in the version that a listing tells)."""
        origin, known = entry.origin, self._fetched.get(doc_id)
        if not origin.is_fetched:
            return False, False
        if present.job_id:
            coming = self._under_way.get(doc_id)
            same = coming is not None and (coming.address, coming.endpoint) == (origin.address, origin.endpoint)
            return same, same and coming is not None and coming.version == origin.version
        if known is None or known.sha256 != present.sha256:
            return False, False
        same = (known.address, known.endpoint) == (origin.address, origin.endpoint)
        is_current = bool(origin.version) and known.etag == origin.version
        return same, same and is_current and entry.size in (None, known.size_bytes)

    def _foreign_reason(self, entry: Entry, present: DocumentState) -> str:
        """Why an item of a source must not replace the document."""
        if present.job_id:
            return "the document is being brought by something else at the moment"
        known = self._fetched.get(wanted_id(entry))
        if known is None or known.endpoint != entry.origin.endpoint:
            return "a document with this ID was not brought by this source, so it is kept as it is"
        return "the document was replaced here since it came from this source, so it is kept as it is"

    def _number(self, line: PlanLine, entry: Entry, how: str) -> PlanLine:
        """The next free number after the name, or the numbered copy that has these bytes or came from this origin."""
        siblings = self._siblings_of(line.doc_id, entry)
        for doc_id, present in siblings.items():
            if present.has(entry.sha256) and not self._difference(present):
                reason = "an identical numbered copy exists"
                return replace(line, doc_id=doc_id, status="unchanged", reason=reason, job_id=present.job_id)
            if doc_id not in self._taken and self._recognize(entry, doc_id, present)[0]:
                self._standings[doc_id] = present
                return self._compare(replace(line, doc_id=doc_id), entry, how)
        number = 2
        while True:
            doc_id = numbered(line.doc_id, number)
            if doc_id not in siblings and doc_id not in self._taken and self._may_take(doc_id):
                return replace(line, doc_id=doc_id, status="renamed", reason="name exists with different content")
            if entry.sha256 and self._taken.get(doc_id) == entry.sha256:
                reason = "duplicate in this upload"
                return replace(line, doc_id=doc_id, status="unchanged", reason=reason)
            number += 1

    def _difference(self, present: DocumentState) -> str:
        policy = self.options.policy
        return present.differs(self.options, lambda: policy_of(self.collection, present, policy).as_dict())

    def _siblings_of(self, doc_id: str, entry: Entry) -> dict[str, DocumentState]:
        """The numbered copies of a document that the sender may read; the first few of all documents are read at once.

        Of what is fetched, any copy may have come from its origin.
        """
        if self._siblings is None:
            firsts = {numbered(name, number) for name in self._standings for number in FIRST_NUMBERS}
            self._siblings = load_states(self.collection, firsts)
        firsts_of_it = [numbered(doc_id, number) for number in FIRST_NUMBERS]
        known = {name: self._siblings[name] for name in firsts_of_it if name in self._siblings}
        if entry.origin.is_fetched or len(known) == len(firsts_of_it):
            known = load_siblings(self.collection, doc_id)
        self._load_sources(list(known) if entry.origin.is_fetched else [])
        hidden = hidden_from(self.asker, self.collection, list(known))
        return {name: state for name, state in known.items() if name not in hidden}

    def _may_take(self, doc_id: str) -> bool:
        """Asked of the database last, when the lock on the name is held: somebody may have taken it meanwhile."""
        if hidden_from(self.asker, self.collection, [doc_id]):
            return False
        return self._is_free(doc_id) and not document_exists(self.collection, doc_id)


def came_from(endpoint: str, address: str = "") -> Q:
    """The documents that still are what a source brought. address: the beginning of what it calls them."""
    return Q(fetched__endpoint=endpoint, fetched__address__startswith=address, source_hash=F("fetched__sha256"))


def find_missing(collection: Collection, of: Q, owners: Set[str] = frozenset()) -> list[PlanLine]:
    """What is to be deleted of a source's documents, by doc_id. of: those that its list does not name.

    owners: documents that the list names, whose parts stay. Archived documents, and those that a job brings at the
    moment, stay too.
    """
    coming = IngestJob.objects.active().filter(collection=collection).exclude(kind=IngestJob.Kind.REINDEX)
    rows = Document.objects.in_state("present").filter(of, collection=collection)
    rows = rows.exclude(doc_id__in=coming.values("doc_id"))
    missing = list(rows.by_doc_id().values_list("doc_id", "source", "size_chars"))
    parts = owners_of(collection, [doc_id for doc_id, _, _ in missing]) if owners else {}
    return [
        PlanLine(source, doc_id, doc_id, "deleted", "no longer at its source", size=size)
        for doc_id, source, size in missing
        if not (parts.get(doc_id, frozenset()) & owners)
    ]


def _repeated_ids(doc_id: str) -> str:
    return f"another file of this request is {doc_id!r} already; rename one, or send them one after the other"
