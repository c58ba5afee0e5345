"""Suggested questions of a collection: derived by rules or written by a chat model, kept where a search finds them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from collections_app.errors import ServiceError
from collections_app.models import Chunk, Collection, Document
from collections_app.services.collections.collections import get_collection
from collections_app.services.governance import audit
from collections_app.stores import embedder_for
from evaluation_app.golden.edits import changing, write_goldens
from evaluation_app.golden.questions import Golden, clean_golden
from evaluation_app.golden.suggestions.expectation_search import look
from evaluation_app.golden.suggestions.model_questions import ask_model
from evaluation_app.golden.suggestions.quality import fault_of
from evaluation_app.golden.suggestions.rule_questions import CATEGORY, RULES, Passage, QuestionCandidate, derive
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput
from ragd.types import Vector

COUNT, COUNT_MAX = 20, 200
PER_DOCUMENT = 3
CHUNKS_READ = 60  # of one document, spread over it
DOCUMENTS_MAX = 400
FOUND_WITHIN = 10
NEAREST_SHOWN = 3
ALIKE = 0.92  # cosine from which two questions ask the same
DEADLINE_S = 25.0
METHODS = ("rules", "model")


@dataclass(slots=True)
class SuggestionOutcome:
    """What became of a search for suggestions. tried: questions that were tried; unusable: by the rules of `quality`;
    lost: not found again, and left out; alike: asked already. documents: how many were read; out_of_time: the deadline
    ended it."""

    made: list[GoldenQuestion] = field(default_factory=list)
    tried: int = 0
    unusable: int = 0
    lost: int = 0
    alike: int = 0
    documents: int = 0
    out_of_time: bool = False

    @property
    def words(self) -> str:
        summary = f"{len(self.made)} generated of {self.tried} tried in {self.documents} documents"
        reasons = [f"{self.unusable} unclear"] if self.unusable else []
        reasons += [f"{self.lost} not retrieved"] if self.lost else []
        reasons += [f"{self.alike} duplicates"] if self.alike else []
        reasons += ["time limit reached"] if self.out_of_time else []
        return f"{summary}; {', '.join(reasons)}" if reasons else summary


@dataclass(frozen=True, slots=True)
class TriedQuestion:
    """A question and what the search finds for it. doc_rank: of its document, from 1; chunk_rank: of its chunk; None
    beyond the first FOUND_WITHIN. nearest: the first other documents."""

    derived: QuestionCandidate
    doc_rank: int | None
    chunk_rank: int | None
    nearest: tuple[str, ...] = ()


def suggest_questions(
    golden_set: GoldenSet,
    *,
    count: int = COUNT,
    doc_ids: Sequence[str] = (),
    method: str = "rules",
    include_unfound: bool = False,
    deadline_s: float = DEADLINE_S,
    actor: audit.Actor = None,
) -> SuggestionOutcome:
    """Up to `count` suggestions from these documents, else from all, those that no question expects first.

    Each is tried: it must make sense alone (`quality`), must not ask what the set asks already, and the collection's
    search must find its document among the first 10 for the question alone: so hit@10 of these is 1 by construction,
    which they say. include_unfound: those that the search does not find are kept too, and none is chosen by it. At most
    3 of one document, the better rules first. Raises InvalidInput for a count or method that is none, ServiceError 404
    for a collection that is gone and 422 for a model that is not set up.
    """
    if not 1 <= count <= COUNT_MAX:
        raise InvalidInput(f"count must be from 1 to {COUNT_MAX}, not {count}", field="count")
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, not {method!r}", field="method")
    collection = get_collection(golden_set.collection_name)
    ends = time.monotonic() + deadline_s
    outcome = SuggestionOutcome()
    known = _KnownQuestions(collection, golden_set)
    selected: list[TriedQuestion] = []
    for document in _documents(collection, golden_set, doc_ids):
        if len(selected) >= count:
            break
        if time.monotonic() > ends:
            outcome.out_of_time = True
            break
        outcome.documents += 1
        passages = read_passages(collection, document)
        derived = _usable(_derive(passages, method, ends), passages, outcome)
        wanted = min(PER_DOCUMENT, count - len(selected))
        selected += _try(collection, derived, known, outcome, wanted, include_unfound)
    goldens = [_golden(collection, tried, method, by_construction=not include_unfound) for tried in selected]
    _keep(golden_set, goldens, outcome, actor)
    return outcome


def _derive(passages: Sequence[Passage], method: str, ends: float) -> list[QuestionCandidate]:
    if method == "model":
        return ask_model(passages, timeout_s=max(ends - time.monotonic(), 1.0))
    return sorted(derive(passages), key=lambda item: RULES.index(item.rule))


def _usable(
    derived: Iterable[QuestionCandidate], passages: Sequence[Passage], outcome: SuggestionOutcome
) -> Iterator[QuestionCandidate]:
    """Those that can be asked by somebody who has not seen the passage."""
    headings = {passage.chunk_index: passage.headings for passage in passages}
    for item in derived:
        if fault_of(item, headings.get(item.chunk_index, ())):
            outcome.tried += 1
            outcome.unusable += 1
        else:
            yield item


def _try(
    collection: Collection,
    derived: Iterable[QuestionCandidate],
    known: _KnownQuestions,
    outcome: SuggestionOutcome,
    requested: int,
    include_unfound: bool,
) -> list[TriedQuestion]:
    """The first that pass, at most so many."""
    selected: list[TriedQuestion] = []
    for item in derived:
        outcome.tried += 1
        if known.holds(item.question):
            outcome.alike += 1
            continue
        tried = try_question(collection, item)
        if tried.doc_rank is None and not include_unfound:
            outcome.lost += 1
            continue
        known.add(item.question)
        selected.append(tried)
        if len(selected) >= requested:
            break
    return selected


def try_question(collection: Collection, derived: QuestionCandidate) -> TriedQuestion:
    """What the search for the question alone brings up among the first FOUND_WITHIN."""
    result = look(collection, derived.question, FOUND_WITHIN)
    documents = list(dict.fromkeys(item.doc_id for item in result))
    keys = [item.key for item in result]
    position = (derived.doc_id, derived.chunk_index)
    return TriedQuestion(
        derived,
        documents.index(derived.doc_id) + 1 if derived.doc_id in documents else None,
        keys.index(position) + 1 if position in keys else None,
        tuple(doc_id for doc_id in documents if doc_id != derived.doc_id)[:NEAREST_SHOWN],
    )


def read_passages(collection: Collection, document: Document) -> list[Passage]:
    """At most CHUNKS_READ chunks of a document that are retrieved, spread evenly over it."""
    rows = Chunk.objects.of(collection).filter(doc_id=document.doc_id, enabled=True).order_by("chunk_index")
    indexes = list(rows.values_list("chunk_index", flat=True))
    step = max(1, -(-len(indexes) // CHUNKS_READ))
    columns = ("chunk_index", "content", "context", "start_char")
    return [
        Passage(document.doc_id, index, content, tuple(part for part in context.split(" > ") if part), start)
        for index, content, context, start in rows.filter(chunk_index__in=indexes[::step]).values_list(*columns)
    ]


def _documents(collection: Collection, golden_set: GoldenSet, doc_ids: Sequence[str]) -> Iterator[Document]:
    """Those that no question expects first, each group in an order that depends on nothing but the ids."""
    rows = Document.objects.filter(collection=collection, enabled=True).only("doc_id", "collection_id")
    if doc_ids:
        known = {row.doc_id: row for row in rows.filter(doc_id__in=doc_ids)}
        if gone := next((doc_id for doc_id in doc_ids if doc_id not in known), None):
            raise ServiceError(
                f"collection {collection.name!r} has no enabled document {gone!r}",
                type="unknown_document",
                status=404,
                field="doc_ids",
            )
        yield from (known[doc_id] for doc_id in dict.fromkeys(doc_ids))
        return
    expected = {doc_id for row in golden_set.questions.all() for doc_id in Golden.of(row).relevant_docs}
    ids = sorted(
        rows.values_list("doc_id", flat=True),
        key=lambda doc_id: (doc_id in expected, hashlib.sha256(doc_id.encode()).hexdigest()),
    )
    for doc_id in ids[:DOCUMENTS_MAX]:
        yield Document(collection=collection, doc_id=doc_id)


class _KnownQuestions:
    """The questions that a set has, suggestions too, and what the embedder makes of them."""

    def __init__(self, collection: Collection, golden_set: GoldenSet) -> None:
        self.embedder = embedder_for(collection.embed_model, collection.embed_dims)
        texts = list(golden_set.questions.values_list("question", flat=True))
        self.texts = {text.lower() for text in texts}
        self.vectors: list[Vector] = list(self.embedder.embed(texts))
        self.last: tuple[str, Vector] | None = None

    def holds(self, question: str) -> bool:
        """Whether a question of the set says or means the same."""
        if question.lower() in self.texts:
            return True
        vector = self.embedder.embed_query(question)
        self.last = (question, vector)
        return bool(self.vectors) and float(np.max(np.stack(self.vectors) @ vector)) >= ALIKE

    def add(self, question: str) -> None:
        known = self.last[1] if self.last and self.last[0] == question else self.embedder.embed_query(question)
        self.texts.add(question.lower())
        self.vectors.append(known)


def _keep(golden_set: GoldenSet, goldens: Sequence[Golden], outcome: SuggestionOutcome, actor: audit.Actor) -> None:
    with changing(golden_set, actor) as change:
        taken = set(golden_set.questions.values_list("question", flat=True))
        pairs = []
        for index, golden in enumerate(goldens):
            if golden.question not in taken:
                taken.add(golden.question)
                pairs.append((GoldenQuestion(golden_set=change.golden_set, suggested=True, position=index), golden))
        write_goldens(change.golden_set, pairs)
        outcome.made = [row for row, _ in pairs]
        change.summary = f"suggested {len(outcome.made)} questions" if outcome.made else ""


def _golden(collection: Collection, tried: TriedQuestion, method: str, *, by_construction: bool) -> Golden:
    derived = tried.derived
    by = "by a chat model" if method == "model" else f"by rule ({derived.rule})"
    return clean_golden(
        {
            "question": derived.question,
            "expected_doc_ids": [derived.doc_id],
            "expected_chunks": _holders(collection, derived),
            "expected_answer": derived.answer,
            "category": CATEGORY[derived.rule],
            "notes": f"Generated {by} from {derived.doc_id}#{derived.chunk_index}. {_tell_rank(tried)}",
            "by_construction": by_construction,
        }
    )


def _tell_rank(tried: TriedQuestion) -> str:
    if tried.doc_rank is None:
        instead = f"; it finds {', '.join(tried.nearest)} instead" if tried.nearest else ""
        return f"The search does not find the document in the top {FOUND_WITHIN}{instead}."
    chunk = f", the chunk at {tried.chunk_rank}" if tried.chunk_rank else ""
    return f"The search finds the document at rank {tried.doc_rank}{chunk}."


def _holders(collection: Collection, derived: QuestionCandidate) -> list[str]:
    """The chunks that hold the whole sentence, of which overlap makes more than one; at least that it came from."""
    rows = Chunk.objects.of(collection).filter(
        doc_id=derived.doc_id, start_char__lte=derived.start, end_char__gte=derived.end
    )
    indexes = {derived.chunk_index, *rows.values_list("chunk_index", flat=True)}
    return [f"{derived.doc_id}#{index}" for index in sorted(indexes)]
