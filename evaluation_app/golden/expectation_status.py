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
        result = self.chunks[key]
        if doc_id in golden.expected_doc_ids:
            result = replace(result, title=f"#{index}")
        if drift is None:
            return result
        return replace(result, state="gone" if result.state == "gone" else "other", now=drift.now)

    def lost(self, golden: Golden, drifts: Mapping[str, Drift] | None = None) -> list[str]:
        """The keys of what is gone, switched off or another text now, in the question's order."""
        return [item.key for item in self.of(golden, drifts) if item.state != "there"]

    def cannot_be_met(self, golden: Golden) -> bool:
        """Whether something is expected and none of it can be found any more."""
        return not golden.expects_nothing and all(item.state != "there" for item in self.of(golden))


def read_status(collection_name: str, questions: Iterable[Golden]) -> ExpectationStatus:
    """Three queries, however many questions there are. Of a collection that is gone everything is gone."""
    requested = list(questions)
    doc_ids = {doc_id for golden in requested for doc_id in golden.expected_doc_ids}
    keys = {key for golden in requested for key in golden.expected_chunks}
    positions = {key: position for key in keys if (position := place_of(key)) is not None}
    collection = Collection.objects.live().filter(name=collection_name).first()
    result = _read_documents(collection, doc_ids | {doc_id for doc_id, _ in positions.values()})
    chunks = _read_chunks(collection, positions)
    return ExpectationStatus(
        documents={doc_id: _document(collection_name, doc_id, result.get(doc_id)) for doc_id in doc_ids},
        chunks={
            key: _chunk(
                collection_name,
                key,
                positions.get(key),
                result,
                chunks.get(positions[key]) if key in positions else None,
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
    collection: Collection | None, locations: Mapping[str, tuple[str, int]]
) -> dict[tuple[str, int], tuple[str, bool]]:
    """(doc_id, chunk_index) -> (content, whether it is retrieved)."""
    if collection is None or not locations:
        return {}
    rows = Chunk.objects.filter(
        collection=collection,
        doc_id__in={doc_id for doc_id, _ in locations.values()},
        chunk_index__in={index for _, index in locations.values()},
    )
    return {
        (row[0], row[1]): (row[2], row[3]) for row in rows.values_list("doc_id", "chunk_index", "content", "enabled")
    }


def _document(collection_name: str, doc_id: str, results: tuple[str, bool] | None) -> Expected:
    if results is None:
        return Expected(doc_id, doc_id, "gone")
    href = reverse("collections:document", args=[collection_name, doc_id])
    return Expected(doc_id, results[0], "there" if results[1] else "off", href)


def _chunk(
    collection_name: str,
    key: str,
    position: tuple[str, int] | None,
    documents: Mapping[str, tuple[str, bool]],
    results: tuple[str, bool] | None,
) -> Expected:
    if position is None or results is None:
        return Expected(key, key, "gone", is_chunk=True)
    doc_id, index = position
    title = documents.get(doc_id, (doc_id, True))[0]
    href = reverse("collections:chunk", args=[collection_name, index, doc_id])
    excerpt = " ".join(results[0].split())[:EXCERPT_CHARS]
    return Expected(key, f"{title} #{index}", "there" if results[1] else "off", href, excerpt, is_chunk=True)
