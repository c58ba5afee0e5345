"""Marks of expected chunks: by the text that was meant it is told when another one stands under the number.

The number of a chunk is its place in its document. A new revision, another policy or an edit can put other text there,
and then a question would silently expect what nobody chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import F, Func, TextField

from collections_app.models import Chunk, Collection
from evaluation_app.golden.question_rules import split_chunk
from ragd.errors import InvalidInput

# The first 32 hex digits of the text's SHA-256, made where the text is.
MARK = "left(encode(sha256(convert_to(%(expressions)s, 'UTF8')), 'hex'), 32)"


@dataclass(frozen=True, slots=True)
class Drift:
    """An expected chunk under whose number another text stands. now: the key of the chunk that has it, "" for none."""

    key: str
    now: str


def read_marks(collection_name: str, keys: Iterable[str]) -> dict[str, str]:
    """The mark of each chunk that is there, in two queries; {} for a collection that is gone."""
    positions = {position: key for key in keys if (position := place_of(key)) is not None}
    indexes = {index for _, index in positions}
    rows = _chunks(collection_name, {doc_id for doc_id, _ in positions}, indexes) if positions else []
    return {positions[doc_id, index]: mark for doc_id, index, mark in rows if (doc_id, index) in positions}


def choose_marks(keys: Iterable[str], known: Mapping[str, str], results: Mapping[str, str]) -> dict[str, str]:
    """The marks of these keys: those that were known stay, others are as found. A chunk that is not there has none."""
    return {key: mark for key in keys if (mark := known.get(key) or results.get(key))}


def find_drifts(collection_name: str, marks: Iterable[Mapping[str, str]]) -> list[dict[str, Drift]]:
    """Per question: the keys under which another text stands now, or none, where the one that was meant was marked.

    Four queries at most, however many questions there are.
    """
    requested = list(marks)
    present = read_marks(collection_name, {key for item in requested for key in item})
    drifted = {key for item in requested for key, mark in item.items() if present.get(key) != mark}
    doc_ids = {position[0] for key in drifted if (position := place_of(key)) is not None}
    locations: dict[tuple[str, str], str] = {}
    for doc_id, index, mark in _chunks(collection_name, doc_ids) if doc_ids else []:
        locations.setdefault((doc_id, mark), f"{doc_id}#{index}")
    return [
        {
            key: Drift(key, locations.get((key.rpartition("#")[0], mark), ""))
            for key, mark in item.items()
            if present.get(key) != mark
        }
        for item in requested
    ]


def place_of(key: str) -> tuple[str, int] | None:
    """(doc_id, chunk_index); None for what is no key."""
    try:
        return split_chunk(key)
    except InvalidInput:
        return None


def _chunks(collection_name: str, doc_ids: set[str], indexes: set[int] | None = None) -> list[tuple[str, int, str]]:
    """(doc_id, chunk_index, mark) of the documents' chunks, or of those with these numbers, by place."""
    collection = Collection.objects.live().filter(name=collection_name).first()
    if collection is None:
        return []
    rows = Chunk.objects.filter(collection=collection, doc_id__in=doc_ids).order_by("doc_id", "chunk_index")
    if indexes is not None:
        rows = rows.filter(chunk_index__in=indexes)
    mark = Func(F("content"), template=MARK, output_field=TextField())
    return list(rows.annotate(mark=mark).values_list("doc_id", "chunk_index", "mark"))
