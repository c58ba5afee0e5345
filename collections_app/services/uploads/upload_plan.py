"""Files as they are offered, and what an upload of them would do, before anything is written: one line per document."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from collections_app.access_context import Access, current_access
from collections_app.domain.formats import MEGABYTE
from collections_app.domain.identity import DOC_ID_MAX_CHARS, check_doc_id, doc_id_from_name
from collections_app.models import Collection, Document
from collections_app.policies import policy_of
from collections_app.services.documents.document_tree import owners_of
from collections_app.services.governance.document_access import Codes, hidden_from, hidden_reason
from collections_app.services.uploads.current_state import (
    DocumentState,
    Labels,
    Quarantined,
    RequestedMetadata,
    document_exists,
    load_quarantined,
    load_siblings,
    load_states,
)
from ragd.errors import InvalidInput

CLASHES = ("replace", "skip", "keep_both")
ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2")
SHA256 = re.compile(r"[0-9a-f]{64}")

FIRST_NUMBERS = (2, 3, 4)
STATUSES = ("new", "changed", "unchanged", "skipped", "renamed", "rejected", "archive", "deleted")
SENT = ("new", "changed", "renamed", "archive")

IsFree = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as it is offered. doc_id "": made from the name. sha256 in hex, "" when unknown. size in bytes.

    on_clash: "replace", "skip" or "keep_both" for this one; "": what holds for all.
    """

    doc_id: str
    sha256: str
    size: int
    name: str = ""
    on_clash: str = ""


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
    """RefusedError for a file that is empty or larger than documents may be."""
    limit = settings.RAGD_MAX_DOCUMENT_MB
    name = entry.name or entry.doc_id
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


def check_clash(on_clash: str) -> None:
    if on_clash not in CLASHES:
        raise InvalidInput(f"on_clash must be one of {', '.join(CLASHES)}, not {on_clash!r}", field="on_clash")


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
    error_type: the stable word of a rejection. archive: the file is unpacked and its members are compared then.
    of: the archive that a member is from.
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


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """lines: in the order of the entries, then what would be deleted, by doc_id."""

    lines: list[PlanLine]

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
    *,
    on_clash: str = "replace",
    delete_missing: bool = False,
    prefix: str = "",
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    policy: Mapping[str, Any] | None = None,
    language: str | None = None,
    access: Codes | None = None,
) -> UploadPlan:
    """What these files would do to the collection; nothing is written.

    Unchanged is what has the bytes that the document was made from, or that a job under way brings, enabled or not;
    where tags, metadata, policy, language or access are given, these must be the same too. delete_missing: adds
    the documents under `prefix` (a folder; "" is everything) that came from files and are not named. Raises
    InvalidInput for a wrong choice or hash, and for delete_missing without any entry: an empty folder would delete
    everything.
    """
    check_clash(on_clash)
    for entry in entries:
        check_entry(entry)
    if delete_missing and not entries:
        raise InvalidInput(
            "delete_missing needs at least one file: an empty list would delete every document of the folder. "
            "Check the folder, or delete the documents themselves",
            field="delete_missing",
        )
    asked = RequestedMetadata.read(tags, metadata, policy, language, access)
    planner = Planner(collection, asked, on_clash=on_clash)
    planner.load(wanted_id(entry) for entry in entries)
    lines = [planner.decide(entry) for entry in entries]
    if delete_missing:
        lines += find_missing(collection, {line.asked for line in lines} | {line.doc_id for line in lines}, prefix)
    return UploadPlan(lines)


@dataclass(frozen=True, slots=True)
class PlanWords:
    """Parts of reasons that depend on where content comes from. elsewhere: what to do about an archived document."""

    elsewhere: str
    under_way: str
    skipped: str


class Planner:
    """Decides one file after the other, each with what those before it did."""

    words = PlanWords("upload under another name", "identical file is being processed", "exists with different content")

    def __init__(
        self,
        collection: Collection,
        asked: RequestedMetadata,
        *,
        on_clash: str,
        is_free: IsFree | None = None,
        asker: Access | None = None,
    ) -> None:
        """is_free: whether a new name may be taken, asked last; a submission takes a lock on it there. asker: who sends
        the files; None: who asks."""
        self.asker = asker or current_access()
        self.collection = collection
        self.asked = asked
        self.on_clash = on_clash
        self._is_free = is_free or (lambda _: True)
        self._standings: dict[str, DocumentState] = {}
        self._siblings: dict[str, DocumentState] | None = None
        self._hidden: set[str] = set()
        self._taken: dict[str, str] = {}  # doc_id -> sha256 of a file of this request
        self._quarantined: Mapping[str, Quarantined] | None = None

    def load(self, doc_ids: Iterable[str]) -> None:
        """What stands under these ids, and which of them are of documents that the one who sends may not read."""
        names = [doc_id for doc_id in doc_ids if doc_id]
        self._standings |= load_states(self.collection, names)
        self._hidden |= hidden_from(self.asker, self.collection, names)

    def decide(self, entry: Entry, *, is_archive: bool | None = None) -> PlanLine:
        """The line of one file. is_archive: what its bytes are; None: its name tells."""
        name = entry.name or entry.doc_id
        try:
            doc_id = name_document(entry)
            check_size(entry)
        except RefusedError as refusal:
            doc_id = wanted_id(entry) or entry.doc_id
            return PlanLine(name, doc_id, doc_id, "rejected", refusal.message, refusal.type, entry.size)
        line = PlanLine(name, doc_id, doc_id, "new", size=entry.size)
        if doc_id in self._hidden:
            return replace(line, status="rejected", reason=hidden_reason(doc_id), error_type="restricted")
        if is_archive if is_archive is not None else is_archive_name(name):
            return self._archive(line)
        how = entry.on_clash or self.on_clash
        line = self._repeated(line, entry, how) or self._compare(line, entry, how)
        if line.is_sent and (held := self._find_quarantined(entry.sha256)):
            line = replace(line, status="rejected", error_type="quarantined", reason=held.refusal)
        if line.is_sent:
            self._taken[line.doc_id] = entry.sha256
        elif line.status != "rejected":
            self._taken.setdefault(line.doc_id, entry.sha256)
        return line

    def labels_of(self, line: PlanLine) -> Labels:
        """The tags and metadata that a job for this line is to have: those asked for, or those that stand."""
        present = self._standings.get(line.doc_id)
        tags = self.asked.tags if self.asked.tags is not None else present.own[0] if present else []
        metadata = (
            self.asked.metadata if self.asked.metadata is not None else present.stated_metadata if present else {}
        )
        return list(tags), dict(metadata)

    def _find_quarantined(self, sha256: str) -> Quarantined | None:
        if self._quarantined is None:
            self._quarantined = load_quarantined(self.collection)
        return self._quarantined.get(sha256)

    def _archive(self, line: PlanLine) -> PlanLine:
        if line.doc_id in self._taken:
            return replace(line, status="rejected", error_type="duplicate_name", reason=_repeated_ids(line.doc_id))
        self._taken[line.doc_id] = ""
        return replace(line, status="archive", reason="extracted; each file is compared")

    def _repeated(self, line: PlanLine, entry: Entry, how: str) -> PlanLine | None:
        """A second file of the same name in one request."""
        if line.doc_id not in self._taken:
            return None
        if entry.sha256 and self._taken[line.doc_id] == entry.sha256:
            return replace(line, status="unchanged", reason="duplicate in this upload")
        if how == "keep_both":
            return self._beside(line, entry)
        return replace(line, status="rejected", error_type="duplicate_name", reason=_repeated_ids(line.doc_id))

    def _compare(self, line: PlanLine, entry: Entry, how: str) -> PlanLine:
        present = self._standings.get(line.doc_id)
        if present is None:
            return line
        if settled := self._settle(line, present, how, is_same=present.has(entry.sha256)):
            return settled
        return self._beside(line, entry) if how == "keep_both" else replace(line, status="changed")

    def _settle(self, line: PlanLine, present: DocumentState, how: str, *, is_same: bool) -> PlanLine | None:
        """What holds wherever content comes from; None: it is another and is to be taken.

        is_same: the document has this content, or a job brings it.
        """
        if present.archived:
            reason = f"{line.doc_id!r} is archived and read-only; unarchive it first, or {self.words.elsewhere}"
            return replace(line, status="rejected", error_type="archived", reason=reason)
        if is_same:
            why = self._difference(present)
            if not why:
                reason = self.words.under_way if present.job_id else present.remark
                return replace(line, status="unchanged", reason=reason, job_id=present.job_id)
            if how == "replace":
                return replace(line, status="changed", reason=f"same content, different {why}")
            return replace(line, status="skipped", reason=f"same content with different {why}")
        return replace(line, status="skipped", reason=self.words.skipped) if how == "skip" else None

    def _beside(self, line: PlanLine, entry: Entry) -> PlanLine:
        """The next free number after the name, or the numbered copy that has these bytes already."""
        siblings = self._siblings_of(line.doc_id)
        for doc_id, present in siblings.items():
            if present.has(entry.sha256) and not self._difference(present):
                reason = "an identical numbered copy exists"
                return replace(line, doc_id=doc_id, status="unchanged", reason=reason, job_id=present.job_id)
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
        return present.differs(self.asked, lambda: policy_of(self.collection, present, self.asked.policy).as_dict())

    def _siblings_of(self, doc_id: str) -> dict[str, DocumentState]:
        """The numbered copies of a document. The first few of all documents are asked for at once."""
        if self._siblings is None:
            firsts = {numbered(name, number) for name in self._standings for number in FIRST_NUMBERS}
            self._siblings = load_states(self.collection, firsts)
        firsts_of_it = [numbered(doc_id, number) for number in FIRST_NUMBERS]
        known = {name: self._siblings[name] for name in firsts_of_it if name in self._siblings}
        return load_siblings(self.collection, doc_id) if len(known) == len(firsts_of_it) else known

    def _may_take(self, doc_id: str) -> bool:
        """Asked of the database last, when the lock on the name is held: somebody may have taken it meanwhile."""
        if hidden_from(self.asker, self.collection, [doc_id]):
            return False
        return self._is_free(doc_id) and not document_exists(self.collection, doc_id)


def find_missing(collection: Collection, named: set[str], prefix: str) -> list[PlanLine]:
    """The documents of a folder that came from files, and are neither named nor belong to one that is."""
    folder = clean_prefix(prefix)
    rows = Document.objects.filter(collection=collection, archived_at__isnull=True, doc_id__startswith=folder)
    rows = rows.exclude(source_hash="").exclude(source__contains="://").exclude(doc_id__in=named)
    missing = list(rows.by_doc_id().values_list("doc_id", "source", "size_chars"))
    owners = owners_of(collection, [doc_id for doc_id, _, _ in missing])
    return [
        PlanLine(source, doc_id, doc_id, "deleted", "missing in the folder", size=size)
        for doc_id, source, size in missing
        if not (owners.get(doc_id, frozenset()) & named)
    ]


def _repeated_ids(doc_id: str) -> str:
    return f"another file of this upload is {doc_id!r} already; rename one, or send them one after the other"
