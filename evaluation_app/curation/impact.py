"""What a change to documents, chunks or a policy would do to the golden questions: from retrieval alone, before it.

Each question is asked twice, as the index is and as it would be (`ragd.insight.what_if`), in one transaction that is
rolled back. Nobody else sees anything of it. Questions that expect what is touched come first, so that a preview that
runs out of time has looked at what matters most."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from django.db import transaction

from collections_app.index.stores import open_store
from collections_app.models import Collection
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.versions import asked_questions
from evaluation_app.measures.ranking import MEASURES
from evaluation_app.measures.scores import Mean, mean
from evaluation_app.models import GoldenSet
from evaluation_app.scoring.rankings import first_rank, retrieval_scores
from ragd.insight.what_if import Supposed, WhatIf
from ragd.models.embedding import CachingEmbedder
from ragd.normalization import normalize
from ragd.types import Candidate, Embedder, RetrievePlan
from retrieval_app.answers.protocol import chunk_key
from retrieval_app.plans.services import choose_plan

KEPT_VECTORS = 4000
BUDGET_S = 4.0
BUDGET_MOST_S = 60.0
SHOWN_MEASURES = ("hit", "recall", "mrr")

Effect = Literal["lost", "worse", "gained", "better", "changed", "same"]
EFFECTS: tuple[Effect, ...] = ("lost", "worse", "gained", "better", "changed", "same")


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """A golden question with its place: pk of its row, name and pk of its set."""

    pk: int
    set_pk: int
    set_name: str
    golden: Golden

    @property
    def text(self) -> str:
        """As every channel normalizes a query."""
        return normalize(self.golden.question).strip()


def questions_of(collection: Collection, golden_set: GoldenSet | None = None) -> list[StoredQuestion]:
    """Those of one set, else of all sets of the collection by name; suggestions are left out, as in a run."""
    sets: Iterable[GoldenSet] = (
        [golden_set] if golden_set else GoldenSet.objects.filter(collection_name=collection.name).order_by("name")
    )
    return [
        StoredQuestion(row.pk, each.pk, each.name, golden) for each in sets for row, golden in asked_questions(each)
    ]


def keys_of(candidates: Iterable[Candidate]) -> list[str]:
    return [chunk_key(candidate) for candidate in candidates]


# by the embedder's id; each holds its embedder, so that no other takes the id
_caches: dict[int, CachingEmbedder] = {}


def vectors_of(
    texts: Iterable[str],
    embedder: Embedder | None,
    *,
    until: float | None = None,
    alive: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """text -> its vector, in order, as far as time allows. until: time.monotonic() at which no other is begun.

    embedder None (a lexical plan): no vectors at all. alive: called between texts. Raises EmbedderError.
    """
    result: dict[str, Any] = {}
    if embedder is None:
        return result
    cache = _caches.setdefault(id(embedder), CachingEmbedder(embedder, queries=KEPT_VECTORS))
    for text in texts:
        if until is not None and result and time.monotonic() >= until:
            break
        if text not in result:
            result[text] = cache.embed_query(text)
            alive()
    return result


@dataclass(frozen=True, slots=True)
class QuestionImpact:
    """One question. before and after: the best rank of what it expects, None outside the first k.

    left and came: "doc_id#index" of what would leave and enter the first k. touched: it expects a document that the
    change touches. effect: "changed" when only the order, or what is not expected, differs.
    """

    question: StoredQuestion
    before: int | None
    after: int | None
    left: tuple[str, ...]
    came: tuple[str, ...]
    effect: Effect
    touched: bool


@dataclass(frozen=True, slots=True)
class Impact:
    """changed: the questions whose first k differ, the worst first. total: questions that there are, looked: asked.

    means: measure@k -> its mean over the questions that expect something, before and after. estimate: why the figures
    are not exact, "" where they are.
    """

    total: int
    looked: int
    k: int
    plan: RetrievePlan
    plan_name: str
    documents: int
    changed: Sequence[QuestionImpact]
    counts: Mapping[str, int]
    means: Mapping[str, tuple[Mean, Mean]]
    took_ms: float
    estimate: str = ""
    sets: Sequence[str] = field(default_factory=tuple)

    @property
    def is_whole(self) -> bool:
        return self.looked == self.total


def impact_of(
    collection: Collection,
    supposed: Supposed,
    *,
    golden_set: GoldenSet | None = None,
    budget_s: float = BUDGET_S,
    estimate: str = "",
    by_document: bool = False,
) -> Impact:
    """What the supposed change would do to the golden questions by the collection's plan, within the budget.

    golden_set: those of one set, else of all sets of the collection. by_document: chunks get other numbers, so
    expected documents are what counts. No questions: total 0. Raises EmbedderError, RerankerError.
    """
    began = time.monotonic()
    touched = set(supposed.documents)
    questions = questions_of(collection, golden_set)
    ordered = sorted(questions, key=lambda each: touched.isdisjoint(each.golden.relevant_docs))
    chosen = choose_plan(collection, None, {})
    looked: list[tuple[QuestionImpact, StoredQuestion, list[str], list[str]]] = []
    if ordered:
        embedder = None if chosen.plan.mode == "lexical" else open_store(collection).embedder
        vectors_of([ordered[0].text], embedder)  # a model that must be loaded first is not counted
        until = time.monotonic() + budget_s
        vectors = vectors_of((each.text for each in ordered), embedder, until=until - budget_s / 2)
        with transaction.atomic():
            what_if = WhatIf(open_store(collection), supposed)
            what_if.prepare(vectors, chosen.plan)
            for each in ordered:
                if (embedder is not None and each.text not in vectors) or (looked and time.monotonic() >= until):
                    break
                now, then = what_if.compare(each.text, chosen.plan, vectors.get(each.text))
                keys = keys_of(now), keys_of(then)
                looked.append((_compare(each, *keys, touched, by_document=by_document), each, *keys))
            transaction.set_rollback(True)
    result = [impact for impact, *_ in looked]
    counts = Counter(impact.effect for impact in result)
    return Impact(
        total=len(ordered),
        looked=len(result),
        k=chosen.plan.k,
        plan=chosen.plan,
        plan_name=chosen.name,
        documents=len(touched),
        changed=sorted((each for each in result if each.effect != "same"), key=_worst_first),
        counts={effect: counts[effect] for effect in EFFECTS},
        means=_means(looked, chosen.plan.k),
        took_ms=round((time.monotonic() - began) * 1000, 1),
        estimate=estimate,
        sets=tuple(dict.fromkeys(each.set_name for each in questions)),
    )


def _compare(
    question: StoredQuestion, now: list[str], then: list[str], touched: set[str], *, by_document: bool
) -> QuestionImpact:
    before, after = (first_rank(keys, question.golden, by_document=by_document) for keys in (now, then))
    effect: Effect
    if before is not None and after is None:
        effect = "lost"
    elif before is None and after is not None:
        effect = "gained"
    elif before != after and before is not None and after is not None:
        effect = "worse" if after > before else "better"
    else:
        effect = "same" if now == then else "changed"
    return QuestionImpact(
        question,
        before,
        after,
        tuple(key for key in now if key not in then),
        tuple(key for key in then if key not in now),
        effect,
        not touched.isdisjoint(question.golden.relevant_docs),
    )


def _worst_first(impact: QuestionImpact) -> tuple[int, int, str]:
    fall = (impact.before or 0) - (impact.after or 0)
    return EFFECTS.index(impact.effect), fall, impact.question.text


def _means(
    looked: Sequence[tuple[QuestionImpact, StoredQuestion, list[str], list[str]]], k: int
) -> dict[str, tuple[Mean, Mean]]:
    """Over documents, weighted as a run would."""
    expecting = [(question, now, then) for _, question, now, then in looked if not question.golden.expects_nothing]
    weights = [question.golden.weight for question, _, _ in expecting]
    scores = [
        (retrieval_scores(now, question.golden, k), retrieval_scores(then, question.golden, k))
        for question, now, then in expecting
    ]
    names = [f"{name}@{k}" for name in SHOWN_MEASURES if name in MEASURES]
    return {
        name: (mean((a[name] for a, _ in scores), weights), mean((b[name] for _, b in scores), weights))
        for name in names
        if scores
    }
