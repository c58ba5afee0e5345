"""Whether what golden questions expect is still there: documents and chunks come and go, expectations stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from django.urls import reverse

from collections_app.models import Chunk, Collection, Document
from evaluation_app.golden.expected_chunks import Drift, place_of
from evaluation_app.golden.questions import Golden

EXCERPT_CHARS = 240
State = Literal["there", "off", "other", "gone"]


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected document or chunk. key: as the question names it. title: of the document, its id without one.

    state: there, off (disabled or archived, so that no search finds it), other (of a chunk: under its number stands
    another text than was chosen) or gone. href: its page, "" when gone. now: the chunk that has the chosen text.
    """

    key: str
    title: str
    state: State
    href: str = ""
    excerpt: str = ""
    is_chunk: bool = False
    now: str = ""


@dataclass(frozen=True, slots=True)
class ExpectationStatus:
    """What of many questions is there, by key."""

    documents: Mapping[str, Expected]
    chunks: Mapping[str, Expected]

    def of(self, golden: Golden, drifts: Mapping[str, Drift] | None = None) -> list[Expected]:
        """Documents first, each in the question's order. A chunk of an expected document is called by its number.

        drifts: of the question, as `marks.find_drifts` gives them.
        """
        return [
            *(self.documents[doc_id] for doc_id in golden.expected_doc_ids),
            *(self._chunk_of(golden, key, (drifts or {}).get(key)) for key in golden.expected_chunks),
        ]

    def _chunk_of(self, golden: Golden, key: str, drift: Drift | None) -> Expected:
        doc_id, _, index = key.rpartition("#")
        found = self.chunks[key]
        if doc_id in golden.expected_doc_ids:
            found = replace(found, title=f"#{index}")
        if drift is None:
            return found
        return replace(found, state="gone" if found.state == "gone" else "other", now=drift.now)

    def lost(self, golden: Golden, drifts: Mapping[str, Drift] | None = None) -> list[str]:
        """The keys of what is gone, switched off or another text now, in the question's order."""
        return [item.key for item in self.of(golden, drifts) if item.state != "there"]

    def cannot_be_met(self, golden: Golden) -> bool:
        """Whether something is expected and none of it can be found any more."""
        return not golden.expects_nothing and all(item.state != "there" for item in self.of(golden))


def read_status(collection_name: str, questions: Iterable[Golden]) -> ExpectationStatus:
    """Three queries, however many questions there are. Of a collection that is gone everything is gone."""
    wanted = list(questions)
    doc_ids = {doc_id for golden in wanted for doc_id in golden.expected_doc_ids}
    keys = {key for golden in wanted for key in golden.expected_chunks}
    places = {key: place for key in keys if (place := place_of(key)) is not None}
    collection = Collection.objects.live().filter(name=collection_name).first()
    found = _read_documents(collection, doc_ids | {doc_id for doc_id, _ in places.values()})
    chunks = _read_chunks(collection, places)
    return ExpectationStatus(
        documents={doc_id: _document(collection_name, doc_id, found.get(doc_id)) for doc_id in doc_ids},
        chunks={
            key: _chunk(
                collection_name, key, places.get(key), found, chunks.get(places[key]) if key in places else None
            )
            for key in keys
        },
    )


def _read_documents(collection: Collection | None, doc_ids: set[str]) -> dict[str, tuple[str, bool]]:
    """doc_id -> (what people call it, whether it is retrieved)."""
    if collection is None or not doc_ids:
        return {}
    rows = Document.objects.filter(collection=collection, doc_id__in=doc_ids)
    return {row[0]: (row[1] or row[0], row[2]) for row in rows.values_list("doc_id", "title", "enabled")}


def _read_chunks(
    collection: Collection | None, places: Mapping[str, tuple[str, int]]
) -> dict[tuple[str, int], tuple[str, bool]]:
    """(doc_id, chunk_index) -> (content, whether it is retrieved)."""
    if collection is None or not places:
        return {}
    rows = Chunk.objects.filter(
        collection=collection,
        doc_id__in={doc_id for doc_id, _ in places.values()},
        chunk_index__in={index for _, index in places.values()},
    )
    return {
        (row[0], row[1]): (row[2], row[3]) for row in rows.values_list("doc_id", "chunk_index", "content", "enabled")
    }


def _document(collection_name: str, doc_id: str, found: tuple[str, bool] | None) -> Expected:
    if found is None:
        return Expected(doc_id, doc_id, "gone")
    href = reverse("collections:document", args=[collection_name, doc_id])
    return Expected(doc_id, found[0], "there" if found[1] else "off", href)


def _chunk(
    collection_name: str,
    key: str,
    place: tuple[str, int] | None,
    documents: Mapping[str, tuple[str, bool]],
    found: tuple[str, bool] | None,
) -> Expected:
    if place is None or found is None:
        return Expected(key, key, "gone", is_chunk=True)
    doc_id, index = place
    title = documents.get(doc_id, (doc_id, True))[0]
    href = reverse("collections:chunk", args=[collection_name, index, doc_id])
    excerpt = " ".join(found[0].split())[:EXCERPT_CHARS]
    return Expected(key, f"{title} #{index}", "there" if found[1] else "off", href, excerpt, is_chunk=True)
