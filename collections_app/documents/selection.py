"""Which documents are meant: by their ids, or all that a filter lets through; and what stands beside each filter."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from django.db.models import Count, F, Func, Q, TextField
from django.http import QueryDict

from collections_app.access.permissions import EVERYBODY
from collections_app.collections.models import UNKNOWN_LANGUAGE, DocumentQuerySet
from collections_app.documents.filters import read_filter as read_expression
from collections_app.documents.filters import write_filter
from collections_app.errors import ServiceError
from collections_app.models import Collection, Document
from ragd.conditions import Condition, parse_condition
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored, check_doc_id

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


def choose_matching(
    collection: Collection, document_filter: DocumentFilter, *, expected: int | None = None
) -> list[str]:
    """The ids of all that the filter lets through, by id.

    expected: how many somebody saw; ServiceError 409 when there are more or fewer by now. 422 above 200,000.
    """
    names = list(document_filter.rows(collection).by_doc_id().values_list("doc_id", flat=True)[: MATCHED_MAX + 1])
    if len(names) > MATCHED_MAX:
        raise InvalidInput(f"the filter matches more than {MATCHED_MAX} documents; narrow it", field="filter")
    if expected is not None and expected != len(names):
        raise ServiceError(
            f"the filter matches {len(names)} documents by now, not {expected}; nothing was changed. Look again, then "
            "repeat it",
            field="expected",
        )
    return names


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
