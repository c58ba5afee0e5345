"""What a bake-off asks, and the documents that it asks of: the same for every model, chosen by ids alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models.functions import MD5

from collections_app.errors import ServiceError
from collections_app.models import Collection, Document
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.suggestions.quality import fault_of
from evaluation_app.golden.suggestions.rule_questions import RULES, derive
from evaluation_app.golden.suggestions.suggestions import read_passages
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput
from ragd.text.sentences import split_sentences

SAMPLE_CHUNKS, SAMPLE_CHUNKS_MAX = 5_000, 50_000
QUESTIONS_MIN = 8
QUESTIONS_MADE = 100
PER_DOCUMENT = 2
DOCUMENTS_READ = 400
SENTENCE_CHARS = (40, 300)
KEPT_WORDS = 2 / 3  # of a sentence that is asked for where no rule makes a question


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
            f"{where} gave {len(questions)} questions with expected documents; a bake-off needs at least "
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


def make_questions(collection: Collection, most: int = QUESTIONS_MADE) -> list[Golden]:
    """Questions that rules derive from the documents, then sentences without a third of their words; none is searched.

    At most PER_DOCUMENT of one document; documents in the order of a hash of their id. So no model chose them, but
    words of the documents stand in them: they favour keyword search over real questions.
    """
    derived: list[Golden] = []
    spoken: list[Golden] = []
    documents = Document.objects.filter(collection=collection, enabled=True, chunk_count__gt=0)
    for document in documents.only("doc_id", "collection_id").order_by(MD5("doc_id"), "doc_id")[:DOCUMENTS_READ]:
        passages = read_passages(collection, document)
        headings = {passage.chunk_index: passage.headings for passage in passages}
        candidates = sorted(derive(passages), key=lambda item: RULES.index(item.rule))
        good = [item for item in candidates if not fault_of(item, headings.get(item.chunk_index, ()))]
        derived += [Golden(item.question, (document.doc_id,)) for item in good[:PER_DOCUMENT]]
        texts = [passage.content for passage in passages]
        spoken += [Golden(text, (document.doc_id,)) for text in _sentences(texts)[:1]]
        if len(derived) >= most:
            break
    if len(derived) < most // 2:  # rules know English alone
        derived += spoken
    return list({golden.question: golden for golden in derived}.values())[:most]


def _sentences(texts: Sequence[str]) -> list[str]:
    """A sentence of the middle of the document, every third word left out."""
    low, high = SENTENCE_CHARS
    for text in [*texts[len(texts) // 2 :], *texts[: len(texts) // 2]]:
        for start, end in split_sentences(text):
            sentence = " ".join(text[start:end].split())
            if low <= len(sentence) <= high and "|" not in sentence and sentence[0] not in "#*-`":
                words = sentence.split()
                kept = [word for number, word in enumerate(words) if number % 3 != 2]
                return [" ".join(kept) if len(words) > 5 else sentence[: int(len(sentence) * KEPT_WORDS)]]
    return []
