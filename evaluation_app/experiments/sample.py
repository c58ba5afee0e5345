"""What an experiment asks, and the documents that it asks of: the same for every model, chosen by ids alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from django.db.models.functions import MD5

from collections_app.errors import ServiceError
from collections_app.models import Collection, Document
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions.document_questions import make_questions
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput

SAMPLE_CHUNKS, SAMPLE_CHUNKS_MAX = 5_000, 50_000
QUESTIONS_MIN = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """questions: with what they expect. doc_ids: the documents, sorted. chunks: how many they have now."""

    questions: list[Golden]
    doc_ids: list[str]
    chunks: int


def draw_sample(collection: Collection, golden_set: GoldenSet | None, most_chunks: int) -> Sample:
    """The questions of the set, or such that are made from the documents, and documents with about most_chunks chunks.

    Expected documents are always among them; the others come in the order of a hash of their id until the chunks are
    reached. Questions whose documents are gone, and those that expect nothing, are left out. Raises InvalidInput
    (most_chunks), ServiceError 409 for a collection or a set without enough questions.
    """
    if not 100 <= most_chunks <= SAMPLE_CHUNKS_MAX:
        raise InvalidInput(f"sample must be from 100 to {SAMPLE_CHUNKS_MAX} chunks, not {most_chunks}", field="sample")
    questions = list(_asked(collection, golden_set) if golden_set else make_questions(collection))
    if len(questions) < QUESTIONS_MIN:
        where = f"the test set {golden_set.name!r}" if golden_set else "the documents"
        raise ServiceError(
            f"{where} gave {len(questions)} questions with expected documents; an experiment needs at least "
            f"{QUESTIONS_MIN}: add questions to a test set and choose it",
            type="too_few_questions",
            status=409,
            field="golden_set",
        )
    expected = {doc_id for question in questions for doc_id in question.relevant_docs}
    rows = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0)
    sizes = dict(rows.filter(doc_id__in=expected).values_list("doc_id", "chunk_count"))
    chunks = sum(sizes.values())
    for doc_id, count in rows.order_by(MD5("doc_id"), "doc_id").values_list("doc_id", "chunk_count").iterator():
        if chunks >= most_chunks:
            break
        if doc_id not in sizes:
            sizes[doc_id] = count
            chunks += count
    return Sample(questions, sorted(sizes), chunks)


def _asked(collection: Collection, golden_set: GoldenSet) -> Iterator[Golden]:
    rows = GoldenQuestion.objects.filter(golden_set=golden_set, suggested=False).order_by("position", "id")
    goldens = [golden for row in rows if (golden := Golden.of(row)).relevant_docs]
    named = {doc_id for golden in goldens for doc_id in golden.relevant_docs}
    searched = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0, doc_id__in=named)
    present = set(searched.values_list("doc_id", flat=True))
    yield from (golden for golden in goldens if present.issuperset(golden.relevant_docs))
