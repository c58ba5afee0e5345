"""The planner: what files, addresses, objects and items of sources would do, one line per document, before anything is
written."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db.models import F, Q, QuerySet

from collections_app.access.context import Access, current_access
from collections_app.access.document_access import hidden_from, hidden_reason
from collections_app.chunks.policies import policy_of
from collections_app.documents.stored_documents import owners_of
from collections_app.domain.formats import MEGABYTE
from collections_app.models import Collection, Document, FetchedSource, IngestBatch, IngestJob
from collections_app.uploads import current_state
from collections_app.uploads.options import NOTHING_STATED, SYNC, URL, IngestOptions, Origin, check_clash
from ragd.errors import InvalidInput
from ragd.identity import DOC_ID_MAX_CHARS, check_doc_id, doc_id_from_name

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
        self._standings: dict[str, current_state.DocumentState] = {}
        self._siblings: dict[str, current_state.DocumentState] | None = None
        self._hidden: set[str] = set()
        self._fetched: dict[str, FetchedSource] = {}
        self._under_way: dict[str, Origin] = {}  # doc_id -> the origin of the newest job that fetches it
        self._taken: dict[str, str] = {}  # doc_id -> sha256 of a file of this request
        self._quarantined: Mapping[str, current_state.Quarantined] | None = None

    def load(self, entries: Iterable[Entry]) -> None:
        """Read what has the IDs of these entries, and which of that the one who sends them may not read."""
        wanted = {doc_id: entry for entry in entries if (doc_id := wanted_id(entry))}
        self._standings |= current_state.load_states(self.collection, wanted)
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

    def labels_of(self, line: PlanLine) -> current_state.Labels:
        """The tags and metadata that a job for this line is to have: those stated, or those of the document."""
        present = self._standings.get(line.doc_id)
        options = self.options
        tags = options.tags if options.tags is not None else present.own[0] if present else []
        metadata = options.metadata if options.metadata is not None else present.stated_metadata if present else {}
        return list(tags), dict(metadata)

    def _find_quarantined(self, sha256: str) -> current_state.Quarantined | None:
        if self._quarantined is None:
            self._quarantined = current_state.load_quarantined(self.collection)
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

    def _recognize(self, entry: Entry, doc_id: str, present: current_state.DocumentState) -> tuple[bool, bool]:
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

    def _foreign_reason(self, entry: Entry, present: current_state.DocumentState) -> str:
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

    def _difference(self, present: current_state.DocumentState) -> str:
        policy = self.options.policy
        return present.differs(self.options, lambda: policy_of(self.collection, present, policy).as_dict())

    def _siblings_of(self, doc_id: str, entry: Entry) -> dict[str, current_state.DocumentState]:
        """The numbered copies of a document that the sender may read; the first few of all documents are read at once.

        Of what is fetched, any copy may have come from its origin.
        """
        if self._siblings is None:
            firsts = {numbered(name, number) for name in self._standings for number in FIRST_NUMBERS}
            self._siblings = current_state.load_states(self.collection, firsts)
        firsts_of_it = [numbered(doc_id, number) for number in FIRST_NUMBERS]
        known = {name: self._siblings[name] for name in firsts_of_it if name in self._siblings}
        if entry.origin.is_fetched or len(known) == len(firsts_of_it):
            known = current_state.load_siblings(self.collection, doc_id)
        self._load_sources(list(known) if entry.origin.is_fetched else [])
        hidden = hidden_from(self.asker, self.collection, list(known))
        return {name: state for name, state in known.items() if name not in hidden}

    def _may_take(self, doc_id: str) -> bool:
        """Asked of the database last, when the lock on the name is held: somebody may have taken it meanwhile."""
        if hidden_from(self.asker, self.collection, [doc_id]):
            return False
        return self._is_free(doc_id) and not current_state.document_exists(self.collection, doc_id)


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
