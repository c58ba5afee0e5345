"""The promotion gate: the golden questions' retrieval on a new generation beside the one that serves.

The same questions, the same plan, the same measure over documents; each question counts once. Held is a generation
whose mean is lower by more than the margin. The interval of the difference is told beside it and decides nothing: with
few questions it is wide, and a gate that lets everything through until it is narrow would be none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from collections_app.models import Collection, Generation
from collections_app.services.generations.promotion_gate import Verdict, register_gate
from collections_app.services.generations.swap import spec_of
from collections_app.stores import embedder_for, open_rerankers, open_store
from evaluation_app.curation.gate_settings import find_gate
from evaluation_app.curation.golden_retrieval import StoredQuestion, first_rank, keys_of, questions_of, vectors_of
from evaluation_app.measures.statistics import Interval, paired_difference
from evaluation_app.models import GoldenSet, PromotionGate
from evaluation_app.scoring.retrieval_scores import retrieval_scores
from ragd.insight.what_if import Supposed, WhatIf
from ragd.store.generations import open_generation
from ragd.store.store import Store
from ragd.types import RetrievePlan
from retrieval_app.runs.plans import choose_plan

QUESTIONS_KEPT = 500
TOLERANCE = 1e-9  # sums of fractions: a fall that equals the margin is not above it


@dataclass(frozen=True, slots=True)
class Pair:
    """One question on both generations: the measure and the best rank of what is expected, None where it is absent."""

    asked: StoredQuestion
    before: float
    after: float
    rank_before: int | None
    rank_after: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.asked.pk,
            "question": self.asked.golden.question,
            "category": self.asked.golden.category,
            "before": self.before,
            "after": self.after,
            "rank_before": self.rank_before,
            "rank_after": self.rank_after,
        }


def ask_gate(collection: Collection, generation: Generation, alive: Callable[[], object]) -> Verdict | None:
    """What the collection's gate says of a generation; None without a gate. See `promotion.register_gate`.

    A gate that cannot be asked, because its set is gone or expects nothing, holds. Raises EmbedderError, RerankerError.
    """
    gate = find_gate(collection)
    if gate is None:
        return None
    head = _head(gate, collection)
    golden_set = gate.golden_set
    if golden_set is None:
        return Verdict(False, head | {"reason": f"its test set {gate.set_name!r} was deleted, nothing was tested"})
    asked = [each for each in questions_of(collection, golden_set) if each.golden.relevant_docs]
    if not asked:
        reason = f"no question of {golden_set.name!r} expects a document; nothing to compare"
        return Verdict(False, head | {"reason": reason})
    began = time.monotonic()
    pairs = compare_generations(collection, generation, asked, gate, alive=alive)
    took = {"took_ms": round((time.monotonic() - began) * 1000, 1)}
    return _verdict(gate, golden_set, head | took, pairs)


def compare_generations(
    collection: Collection,
    generation: Generation,
    asked: Sequence[StoredQuestion],
    gate: PromotionGate,
    *,
    alive: Callable[[], object] = lambda: None,
) -> list[Pair]:
    """Each question on the generation that serves and on the given one, in order."""
    plan = choose_plan(collection, None, {}).plan
    plan = replace(plan, k=max(plan.k, gate.k), compress=None, token_budget=None)
    serving, coming = open_store(collection), _open(collection, generation)
    now, then = (_rankings(store, _fitting(plan, store), asked, alive) for store in (serving, coming))
    name = f"{gate.measure}@{gate.k}"
    pairs = []
    for each, before, after in zip(asked, now, then, strict=True):
        scores = [retrieval_scores(keys, each.golden, gate.k)[name].value for keys in (before, after)]
        ranks = [first_rank(keys, each.golden, by_document=True) for keys in (before, after)]
        pairs.append(Pair(each, scores[0] or 0.0, scores[1] or 0.0, *ranks))
    return pairs


def _rankings(
    store: Store, plan: RetrievePlan, asked: Sequence[StoredQuestion], alive: Callable[[], object]
) -> list[list[str]]:
    """Each in a transaction of its own, so that a swap or a vacuum never waits for all of them."""
    embedder = None if plan.mode == "lexical" else store.embedder
    vectors = vectors_of((each.text for each in asked), embedder, alive=alive)
    as_it_is = WhatIf(store, Supposed())
    result = []
    for each in asked:
        with transaction.atomic():
            best, _ = as_it_is.compare(each.text, plan, vectors.get(each.text))
        result.append(keys_of(best))
        alive()
    return result


def _open(collection: Collection, generation: Generation) -> Store:
    store = open_generation(
        connection,
        collection.pk,
        generation.number,
        spec_of(generation),
        embedder_for(generation.embed_model, generation.embed_dims),
        exact_threshold=settings.RAGD_EXACT_THRESHOLD,
    )
    store.rerankers = open_rerankers()
    return store


def _fitting(plan: RetrievePlan, store: Store) -> RetrievePlan:
    """The plan, without the lexical list where the generation keeps none."""
    return plan if store.collection.hybrid_enabled or plan.mode == "vector" else replace(plan, mode="vector")


def _head(gate: PromotionGate, collection: Collection) -> dict[str, Any]:
    return {
        "set": gate.golden_set.name if gate.golden_set else gate.set_name,
        "set_id": gate.golden_set_id,
        "set_version": gate.golden_set.version if gate.golden_set else None,
        "measure": f"{gate.measure}@{gate.k}",
        "margin": gate.margin,
        "compared_with": collection.generation,
        "asked_at": timezone.now().isoformat(),
    }


def _verdict(gate: PromotionGate, golden_set: GoldenSet, head: dict[str, Any], pairs: Sequence[Pair]) -> Verdict:
    before, after = [pair.before for pair in pairs], [pair.after for pair in pairs]
    difference = paired_difference(before, after)
    assert difference is not None
    passed = difference.mean >= -gate.margin - TOLERANCE
    differing = sorted(
        (pair for pair in pairs if pair.before != pair.after or pair.rank_before != pair.rank_after),
        key=lambda pair: (pair.after - pair.before, pair.asked.pk),
    )
    return Verdict(
        passed,
        head
        | {
            "questions": len(pairs),
            "questions_of_set": golden_set.questions.filter(suggested=False).count(),
            "before": sum(before) / len(before),
            "after": sum(after) / len(after),
            "difference": difference.as_dict(),
            "worse": sum(pair.after < pair.before for pair in pairs),
            "better": sum(pair.after > pair.before for pair in pairs),
            "changed": [pair.as_dict() for pair in differing[:QUESTIONS_KEPT]],
            "changed_total": len(differing),
            "reason": _reason(gate, difference, passed=passed),
        },
    )


def _reason(gate: PromotionGate, difference: Interval, *, passed: bool) -> str:
    name = f"{gate.measure}@{gate.k}"
    if abs(difference.mean) < TOLERANCE:
        moved = f"{name} unchanged"
    else:
        moved = f"{name} {'falls' if difference.mean < 0 else 'rises'} by {abs(difference.mean):.3f}"
    if passed:
        return f"{moved}; allowed regression {gate.margin:g}"
    noise = "" if difference.excludes_zero else ", not significant"
    return f"{moved}, more than the allowed regression of {gate.margin:g}{noise}"


register_gate("golden questions", ask_gate)
