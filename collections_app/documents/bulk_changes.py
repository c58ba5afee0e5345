"""One change made to many documents: a few hundred at a time, each lot in a transaction of its own, told per document.

What one document refuses holds up no other, and what was done before something broke stays done.

Which documents are meant: by their ids, or all that a filter lets through; and what stands beside each filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from django.db import OperationalError, transaction
from django.db.models import Count, F, Func, Q, TextField
from django.http import QueryDict

from collections_app.access.context import require
from collections_app.access.document_access import OPEN, Codes, change_readers, follows_parent, refuse_attachment
from collections_app.access.permissions import EVERYBODY, Permission
from collections_app.audit import services
from collections_app.collections.models import UNKNOWN_LANGUAGE, DocumentQuerySet, name_actor
from collections_app.documents import edits
from collections_app.documents.filters import read_filter as read_expression
from collections_app.documents.filters import write_filter
from collections_app.documents.revisions.services import BULK_EDIT
from collections_app.documents.services import (
    change_state,
    delete_documents,
    get_document,
    reindex_documents,
    trash_documents,
)
from collections_app.documents.stored_documents import Cause, lock_documents, refuse_archived
from collections_app.errors import ServiceError, describe
from collections_app.jobs.attempts import IngestOutcome
from collections_app.models import Collection, Document
from ragd.conditions import Condition, parse_condition
from ragd.errors import InvalidInput, RagdError, UnknownCollection
from ragd.identity import can_be_stored, check_doc_id, check_language, clean_metadata, clean_tags

Access = Literal["restricted", "open"]
State = Literal["present", "enabled", "disabled", "archived", "any"]
ACCESSES, STATES = get_args(Access), get_args(State)
# name in an address of a page -> field of DocumentFilter
ADDRESS_FIELDS = {
    "q": "q", "tag": "tags", "state": "state", "type": "media_type", "language": "language", "filter": "where",
    "access": "access", "folder": "folder",
}  # fmt: skip
NAMED_MAX = 10_000
MATCHED_MAX = 200_000
FACETS_MAX = 30


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """q: words that id, title or source contain. tags: all of them. state: one of STATES. language:
    ISO 639-1 code, or "unknown". where: a typed filter over the fields of documents. access: "restricted" or
    "open". folder: what ids begin with, with a slash at its end. Empty fields match all."""

    q: str = ""
    tags: tuple[str, ...] = ()
    state: str = "present"
    media_type: str = ""
    language: str = ""
    where: Condition | None = None
    access: str = ""
    folder: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise InvalidInput(f"state must be one of {', '.join(STATES)}, not {self.state!r}", field="state")

    @property
    def narrows(self) -> bool:
        """Whether anything is stated."""
        return self != DocumentFilter()

    @property
    def expression(self) -> str:
        """`where` as people write it."""
        return write_filter(self.where) if self.where else ""

    def as_params(self, prefix: str = "") -> list[tuple[str, str]]:
        """(name, value) of a form or an address that `read_filter` reads as this filter."""
        values = {name: getattr(self, field) for name, field in ADDRESS_FIELDS.items()}
        single = [(name, value) for name, value in (values | {"filter": self.expression}).items() if name != "tag"]
        return [(prefix + name, value) for name, value in (*(("tag", tag) for tag in self.tags), *single)]

    def rows(self, collection: Collection) -> DocumentQuerySet:
        """The documents that it lets through, in no order. Raises InvalidInput where `where` asks for a field of
        chunks."""
        document_query_set: DocumentQuerySet = Document.objects.filter(collection=collection)
        if not all(can_be_stored(text) for text in (self.q, self.media_type, self.language, self.folder, *self.tags)):
            return document_query_set.none()
        document_query_set = document_query_set.matching(self.q)
        rows = document_query_set.tagged(self.tags).in_state(self.state)
        rows = rows.of_type(self.media_type).in_language(self.language).satisfying(self.where)
        return rows.of_access(self.access).in_folder(self.folder)


@dataclass(frozen=True, slots=True)
class Facet:
    """One value of a filter and how many documents the rest of the filter leaves for it."""

    value: str
    count: int


def count_facets(collection: Collection, document_filter: DocumentFilter) -> dict[str, list[Facet]]:
    """states, tags, media_types, languages and access with counts, each under the other filters; the most frequent
    first, at most 30.
    """
    return {
        "states": _states(replace(document_filter, state="any").rows(collection)),
        "tags": _tags(document_filter.rows(collection)),
        "media_types": _values(replace(document_filter, media_type="").rows(collection), "media_type"),
        "languages": [
            Facet(facet.value or UNKNOWN_LANGUAGE, facet.count)
            for facet in _values(replace(document_filter, language="").rows(collection), "language")
        ],
        "access": _access(replace(document_filter, access="").rows(collection)),
    }


def _states(rows: DocumentQuerySet) -> list[Facet]:
    enabled, disabled, archived = rows.count_states().values()
    totals = (enabled + disabled, enabled, disabled, archived, enabled + disabled + archived)
    return [Facet(state, total) for state, total in zip(STATES, totals, strict=True)]


def _access(rows: DocumentQuerySet) -> list[Facet]:
    everybody = Q(access__contains=[EVERYBODY])
    counts = rows.aggregate(restricted=Count("pk", filter=~everybody), open=Count("pk", filter=everybody))
    return [Facet(name, counts[name]) for name in ACCESSES]


def _tags(rows: DocumentQuerySet) -> list[Facet]:
    every = rows.order_by().annotate(tag=Func(F("tags"), function="unnest", output_field=TextField()))
    counted = every.values("tag").annotate(total=Count("pk")).order_by("-total", "tag")
    return [Facet(tag, total) for tag, total in counted.values_list("tag", "total")[:FACETS_MAX]]


def _values(rows: DocumentQuerySet, name: str) -> list[Facet]:
    counted = rows.order_by().values(name).annotate(total=Count("pk")).order_by("-total", name)
    return [Facet(value, total) for value, total in counted.values_list(name, "total")[:FACETS_MAX]]


def choose_named(doc_ids: Iterable[str]) -> list[str]:
    """The ids, each once, in order. InvalidInput for more than 10,000 or for one that cannot be an id."""
    names = list(dict.fromkeys(doc_ids))
    if len(names) > NAMED_MAX:
        raise InvalidInput(
            f"doc_ids must name at most {NAMED_MAX} documents, not {len(names)}; name a filter instead", field="doc_ids"
        )
    return [check_doc_id(name) for name in names]


def find_known(collection: Collection, doc_ids: Sequence[str]) -> set[str]:
    """Those of the ids that there is a document of which whoever asks may see."""
    rows = Document.objects.filter(collection=collection, doc_id__in=doc_ids)
    return set(rows.values_list("doc_id", flat=True))


def choose_matching(
    collection: Collection, document_filter: DocumentFilter, *, expected: int | None = None
) -> list[str]:
    """The ids of all that the filter lets through, by id.

    expected: how many somebody saw; ServiceError 409 when there are more or fewer by now. 422 above 200,000.
    """
    names = list(document_filter.rows(collection).by_doc_id().values_list("doc_id", flat=True)[: MATCHED_MAX + 1])
    if len(names) > MATCHED_MAX:
        raise InvalidInput(f"the filter matches more than {MATCHED_MAX} documents; narrow it", field="filter")
    check_expected(expected, len(names))
    return names


def check_expected(expected: int | None, count: int) -> None:
    """Raise ServiceError 409 where somebody saw another number of documents."""
    if expected is not None and expected != count:
        raise ServiceError(
            f"{count} documents match by now, not {expected}; nothing was changed. Look again, then repeat it",
            field="expected",
        )


def read_filter(query: QueryDict, prefix: str = "") -> DocumentFilter:
    """From an address or a form, by ADDRESS_FIELDS; what makes no sense there counts as not stated, but for `filter`: a
    list without it would be of too many documents. Raises InvalidInput that says what is wrong in it."""
    values: dict[str, Any] = {field: query.get(prefix + name, "") for name, field in ADDRESS_FIELDS.items()}
    folder = values["folder"].strip("/")
    return DocumentFilter(
        **values | {
            "tags": tuple(filter(None, query.getlist(f"{prefix}tag"))),
            "state": values["state"] if values["state"] in STATES else "present",
            "where": parse_condition(read_expression(values["where"])),
            "access": values["access"] if values["access"] in ACCESSES else "",
            "folder": f"{folder}/" if folder else "",
        }
    )  # fmt: skip


LOT = 500
Action = Literal[
    "enable", "disable", "archive", "unarchive", "add_tags", "remove_tags", "set_metadata", "remove_metadata",
    "set_language", "set_access", "reindex", "delete",
]  # fmt: skip
ACTIONS = get_args(Action)
LABELLING = ("add_tags", "remove_tags", "set_metadata", "remove_metadata")
STATE_CHANGES = {"enable": "enabled", "disable": "disabled", "archive": "archived", "unarchive": "unarchived"}
DONE = {"reindex": "queued", "delete": "deleted"}
READS_ARCHIVED = ("archive", "unarchive", "delete", "disable", "set_access")


@dataclass(frozen=True, slots=True)
class BulkChange:
    """What is to be done. tags: for add_tags and remove_tags. key: for set_metadata, with value, and remove_metadata.

    only_existing: set_metadata leaves documents alone that do not have the key. language: for set_language, "" to have
    it found. access: for set_access, as `document_access.resolve` gives it. to_trash: what is deleted can be restored.
    """

    action: str
    tags: tuple[str, ...] = ()
    key: str = ""
    value: Any = None
    only_existing: bool = False
    language: str = ""
    access: Codes | None = None
    to_trash: bool = False

    def checked(self) -> BulkChange:
        """The same in the form that is kept. InvalidInput naming the field."""
        if self.action not in ACTIONS:
            raise InvalidInput(f"action must be one of {', '.join(ACTIONS)}, not {self.action!r}", field="action")
        if self.action == "set_access" and self.access is None:
            raise InvalidInput("set_access needs access: users and groups, or restricted: false", field="access")
        tags, key, value = clean_tags(self.tags), self.key, self.value
        if self.action in ("add_tags", "remove_tags") and not tags:
            raise InvalidInput(f"{self.action} needs at least one tag in tags", field="tags")
        if self.action in ("set_metadata", "remove_metadata"):
            if not key.strip():
                raise InvalidInput(f"{self.action} needs the name of a field in key", field="key")
            ((key, value),) = clean_metadata({key: value}).items()
        return replace(self, tags=tags, value=value, language=check_language(self.language))


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """What became of one document. status: changed, queued, deleted, unchanged, unknown, or refused with the reason."""

    doc_id: str
    status: str
    error_type: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """One result per document, in the order asked for. removed: what went along with deleted documents, counted."""

    results: list[DocumentResult]
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """status -> documents, those that occur."""
        totals: dict[str, int] = {}
        for result in self.results:
            totals[result.status] = totals.get(result.status, 0) + 1
        return totals

    def count(self, *statuses: str) -> int:
        return sum(self.counts.get(status, 0) for status in statuses)


def preview_change(doc_ids: Sequence[str], known: Set[str]) -> BulkOutcome:
    """The documents that a change would be made to, as "meant", and those that are not known."""
    return BulkOutcome([DocumentResult(name, "meant") if name in known else _unknown(name) for name in doc_ids])


def change_documents(
    collection: Collection, change: BulkChange, doc_ids: Sequence[str], *, actor: services.Actor = None
) -> BulkOutcome:
    """Make one change to all of these documents (`selection` chooses them); documents that repeat are done once.

    Raises InvalidInput when the change itself makes no sense, UnknownCollection when the collection goes away.
    """
    require(Permission.WRITE, collection.pk)
    bulk = _Bulk(collection, change.checked(), actor)
    names = list(dict.fromkeys(doc_ids))
    lot = len(names) if bulk.change.action == "reindex" else LOT  # one batch of jobs
    for first in range(0, len(names), max(lot, 1)):
        bulk.do(names[first : first + lot])
    return BulkOutcome([bulk.results[name] for name in names], bulk.removed)


class _Bulk:
    """One change over lots of documents, and what has come of it so far."""

    def __init__(self, collection: Collection, change: BulkChange, actor: services.Actor) -> None:
        self.collection, self.change, self.actor = collection, change, actor
        self.results: dict[str, DocumentResult] = {}
        self.removed: dict[str, int] = {}

    def do(self, names: Sequence[str]) -> None:
        try:
            changed = self._lot(names)
        except UnknownCollection:
            raise
        except (ServiceError, RagdError, OperationalError) as error:
            details = describe(error)[1]["error"]
            for name in names:
                self.results.setdefault(name, DocumentResult(name, "refused", details["type"], details["message"]))
            return
        done = DONE.get(self.change.action, "changed")
        for name in names:
            self.results.setdefault(name, DocumentResult(name, done if name in changed else "unchanged"))

    def _lot(self, names: Sequence[str]) -> set[str]:
        """Do it to one lot; returns the ids that changed. Who is refused or unknown is written down at once."""
        rows = Document.objects.filter(collection=self.collection, doc_id__in=names)
        result = dict(rows.values_list("doc_id", "state"))
        for name in names:
            if name not in result:
                self.results[name] = _unknown(name)
            elif result[name] == Document.State.ARCHIVED and self.change.action not in READS_ARCHIVED:
                self._refuse_archived(name)
        open_names = [name for name in names if name not in self.results]
        if not open_names:
            return set()
        if self.change.action in LABELLING:
            return self._relabel(open_names)
        if self.change.action == "set_language":
            return self._set_language(open_names)
        return set(self._simple(open_names))

    def _simple(self, names: list[str]) -> Sequence[str]:
        action, collection, actor = self.change.action, self.collection, self.actor
        if action in STATE_CHANGES:
            return change_state(collection, names, STATE_CHANGES[action], actor=actor)
        if action == "reindex":
            return [job.doc_id for job in reindex_documents(collection, names, actor=actor)]
        if action == "delete":
            gone = (trash_documents if self.change.to_trash else delete_documents)(collection, names, actor=actor)
            self.removed = {what: self.removed.get(what, 0) + number for what, number in gone.items()}
            return names
        attached = follows_parent(collection, names)  # set_access
        for name, parent in attached.items():
            refusal = refuse_attachment(name, parent)
            self._refuse(name, "refused", refusal.type, refusal.message)
        owners = [name for name in names if name not in attached]
        return change_readers(collection, owners, self.change.access or OPEN, actor=actor)

    def _relabel(self, names: list[str]) -> set[str]:
        """Most in a few statements; those whose chunks have the key of their own are cut anew, one by one."""
        slow: list[edits.Labels] = []
        with transaction.atomic():
            lock_documents(self.collection, names)
            busy = edits.find_busy(self.collection, names, edits.FILE_KINDS)
            quick: list[edits.Labels] = []
            rows = Document.objects.filter(collection=self.collection, doc_id__in=names)
            for pk, doc_id, tags, metadata, state in rows.values_list("pk", "doc_id", "tags", "metadata", "state"):
                if state == Document.State.ARCHIVED:
                    self._refuse_archived(doc_id)
                    continue
                if doc_id in busy:
                    self._refuse_busy(doc_id)
                    continue
                try:
                    labels = edits.Labels(pk, doc_id, *_labelled(self.change, tuple(tags), metadata))
                except InvalidInput as error:
                    self._refuse(doc_id, "refused", "invalid_input", error.message)
                    continue
                (slow if edits.touches_chunk_keys(metadata, labels.metadata) else quick).append(labels)
            cause = Cause(BULK_EDIT, name_actor(self.actor))
            changed = set(edits.relabel(self.collection, quick, cause, actor=self.actor))
        return changed | self._rewrite_each([labels.doc_id for labels in slow])

    def _set_language(self, names: list[str]) -> set[str]:
        for name in edits.find_busy(self.collection, names, edits.FILE_KINDS):
            self._refuse_busy(name)
        rows = Document.objects.filter(collection=self.collection, doc_id__in=set(names) - self.results.keys())
        others = rows.exclude(language_stated=self.change.language)
        return self._rewrite_each(list(others.by_doc_id().values_list("doc_id", flat=True)))

    def _rewrite_each(self, names: Sequence[str]) -> set[str]:
        """Cut these anew, one by one; returns the ids that changed."""
        changed = set()
        for name in names:
            try:
                outcome = self._rewrite(name)
            except (ServiceError, RagdError) as error:
                details = describe(error)[1]["error"]
                self._refuse(name, "refused", details["type"], details["message"])
            else:
                changed |= set() if outcome.unchanged else {name}
        return changed

    def _rewrite(self, doc_id: str) -> IngestOutcome:
        """From what the document says at that moment: those before it may have taken a while."""
        fields: dict[str, Any] = {"language": self.change.language}
        if self.change.action in LABELLING:
            document = get_document(self.collection, doc_id)
            tags, metadata = _labelled(self.change, tuple(document.tags), document.metadata)
            fields = {"tags": tags, "metadata": metadata}
        return edits.rewrite_document(self.collection, doc_id, fields, actor=self.actor)

    def _refuse(self, doc_id: str, status: str, error_type: str, error: str) -> None:
        self.results[doc_id] = DocumentResult(doc_id, status, error_type, error)

    def _refuse_busy(self, doc_id: str) -> None:
        self._refuse(doc_id, "refused", edits.refuse_busy(doc_id).type, edits.refuse_busy(doc_id).message)

    def _refuse_archived(self, doc_id: str) -> None:
        refusal = refuse_archived(doc_id)
        self._refuse(doc_id, "refused", refusal.type, refusal.message)


def _unknown(doc_id: str) -> DocumentResult:
    return DocumentResult(doc_id, "unknown", "unknown_document", "there is no such document in the collection")


def _labelled(
    change: BulkChange, tags: tuple[str, ...], metadata: Mapping[str, Any]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Tags and metadata with the change made. InvalidInput when they would be too much to keep."""
    return RELABEL[change.action](change, tags, dict(metadata))


_Relabelled = tuple[tuple[str, ...], dict[str, Any]]


def _add_tags(change: BulkChange, tags: tuple[str, ...], metadata: dict[str, Any]) -> _Relabelled:
    return clean_tags([*tags, *change.tags]), metadata


def _remove_tags(change: BulkChange, tags: tuple[str, ...], metadata: dict[str, Any]) -> _Relabelled:
    return tuple(tag for tag in tags if tag not in change.tags), metadata


def _set_metadata(change: BulkChange, tags: tuple[str, ...], metadata: dict[str, Any]) -> _Relabelled:
    if change.only_existing and change.key not in metadata:
        return tags, metadata
    return tags, clean_metadata({**metadata, change.key: change.value})


def _remove_metadata(change: BulkChange, tags: tuple[str, ...], metadata: dict[str, Any]) -> _Relabelled:
    return tags, {key: value for key, value in metadata.items() if key != change.key}


RELABEL: dict[str, Callable[[BulkChange, tuple[str, ...], dict[str, Any]], _Relabelled]] = {
    "add_tags": _add_tags,
    "remove_tags": _remove_tags,
    "set_metadata": _set_metadata,
    "remove_metadata": _remove_metadata,
}
