"""Golden questions asked before a change: the promotion gate of index versions, and the impact of an edit.

Each question is asked twice, as the index is and as it would be (`ragd.insight.what_if`), in one transaction that is
rolled back. Nobody else sees anything of it. Questions that expect what is touched come first, so that a preview that
runs out of time has looked at what matters most.

The same questions, the same plan, the same measure over documents; each question counts once. Held is an index version
whose mean is lower by more than the margin. The interval of the difference is reported and decides nothing: with few
questions it is wide, and a gate that lets everything through until it is narrow would be none.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.db import transaction
from django.utils import timezone

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.errors import UnknownError
from collections_app.index.services import open_version
from collections_app.index.stores import open_store
from collections_app.index.swap import Verdict, register_gate
from collections_app.models import Collection, IndexVersion
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import asked_questions
from evaluation_app.measures.scores import MEASURES, Mean, mean
from evaluation_app.measures.statistics import Interval, paired_difference
from evaluation_app.models import GoldenSet, PromotionGate
from evaluation_app.scoring.contributions import FirstRanks, first_rank, retrieval_scores
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored
from ragd.insight.what_if import Supposed, WhatIf
from ragd.models.embedding import CachingEmbedder
from ragd.normalization import normalize
from ragd.store.store import Store
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


K_MAX = 100
DEFAULTS = {"measure": "recall", "k": 10, "margin": 0.02}
QUESTIONS_KEPT = 500
TOLERANCE = 1e-9  # sums of fractions: a fall that equals the margin is not above it


def find_gate(collection: Collection) -> PromotionGate | None:
    """None: every index version of the collection may serve."""
    return PromotionGate.objects.select_related("golden_set").filter(collection_name=collection.name).first()


def set_gate(
    collection: Collection,
    set_name: str,
    *,
    measure: str = "recall",
    k: int = 10,
    margin: float = 0.02,
    actor: services.Actor = None,
) -> PromotionGate:
    """From now on an index version serves only if the set's mean of the measure falls by no more than the margin.

    Raises ServiceError 404 (field "set") for a set that the collection does not have, InvalidInput that names a field.
    """
    require(Permission.EVALUATE, collection.pk)
    golden_set = find_own_set(collection, set_name)
    check_gate(measure, k, margin)
    with transaction.atomic():
        previous = PromotionGate.objects.filter(collection_name=collection.name)
        before = previous.values("set_name", "measure", "k", "margin").first()
        gate, _ = PromotionGate.objects.update_or_create(
            collection_name=collection.name,
            defaults={
                "golden_set": golden_set,
                "set_name": golden_set.name,
                "measure": measure,
                "k": k,
                "margin": float(margin),
                "updated_by": name_actor(actor),
            },
        )
        message = f"set the quality gate: {measure}@{k} of {golden_set.name}, allowed regression {margin:g}"
        after = {"set_name": golden_set.name, "measure": measure, "k": k, "margin": margin}
        services.record(actor, [collection], "collection.gate", message, before=before, after=after)
    return gate


def find_own_set(collection: Collection, name: str) -> GoldenSet:
    """The set of that name over the collection. Raises ServiceError 404 (field "set")."""
    own = GoldenSet.objects.filter(collection_name=collection.name)
    record = own.filter(name=name).first() if can_be_stored(name) else None
    if record is None:
        raise UnknownError(
            "golden_set",
            f"collection {collection.name!r} has no golden set {name!r}; choose one of its own",
            field="set",
        )
    return record


def remove_gate(collection: Collection, *, actor: services.Actor = None) -> bool:
    """Let every index version serve again; whether there was a gate."""
    require(Permission.EVALUATE, collection.pk)
    with transaction.atomic():
        gone, _ = PromotionGate.objects.filter(collection_name=collection.name).delete()
        if gone:
            services.record(actor, [collection], "collection.gate", "deleted the quality gate")
    return gone > 0


def check_gate(measure: object, k: object, margin: object) -> None:
    """Raises InvalidInput that names the field."""
    if measure not in MEASURES:
        raise InvalidInput(f"measure must be one of {', '.join(MEASURES)}, not {measure!r}", field="measure")
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= K_MAX:
        raise InvalidInput(f"k must be a whole number from 1 to {K_MAX}, not {k!r}", field="k")
    if not isinstance(margin, int | float) or isinstance(margin, bool) or not 0 <= margin <= 1:  # NaN neither
        raise InvalidInput(f"margin must be a number from 0 to 1, not {margin!r}", field="margin")


@dataclass(frozen=True, slots=True)
class QuestionPair:
    """One question on both index versions: the measure and the best rank of what is expected, None where it is
    absent."""

    question: StoredQuestion
    before: float
    after: float
    rank_before: int | None
    rank_after: int | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.question.pk,
            "question": self.question.golden.question,
            "category": self.question.golden.category,
            "documents": list(self.question.golden.relevant_docs),
            "before": self.before,
            "after": self.after,
            "rank_before": self.rank_before,
            "rank_after": self.rank_after,
        }


def ask_gate(collection: Collection, index_version: IndexVersion, alive: Callable[[], object]) -> Verdict | None:
    """What the collection's gate says of an index version; None without a gate. See `promotion.register_gate`.

    A gate that cannot be asked, because its set is gone or expects nothing, holds. Raises EmbedderError, RerankerError.
    """
    gate = find_gate(collection)
    if gate is None:
        return None
    head = {
        "set": gate.golden_set.name if gate.golden_set else gate.set_name,
        "set_id": gate.golden_set_id,
        "set_version": gate.golden_set.version if gate.golden_set else None,
        "measure": f"{gate.measure}@{gate.k}",
        "margin": gate.margin,
        "compared_with": collection.index_version,
        "asked_at": timezone.now().isoformat(),
    }
    golden_set = gate.golden_set
    if golden_set is None:
        return Verdict(False, head | {"reason": f"its test set {gate.set_name!r} was deleted, nothing was tested"})
    questions = [each for each in questions_of(collection, golden_set) if each.golden.relevant_docs]
    if not questions:
        reason = f"no question of {golden_set.name!r} expects a document; nothing to compare"
        return Verdict(False, head | {"reason": reason})
    began = time.monotonic()
    pairs = compare_index_versions(collection, index_version, questions, gate, alive=alive)
    took = {"took_ms": round((time.monotonic() - began) * 1000, 1)}
    return _verdict(gate, golden_set, head | took, pairs)


def compare_index_versions(
    collection: Collection,
    index_version: IndexVersion,
    questions: Sequence[StoredQuestion],
    gate: PromotionGate,
    *,
    alive: Callable[[], object] = lambda: None,
) -> list[QuestionPair]:
    """Each question on the index version that serves and on the given one, in order."""
    plan = choose_plan(collection, None, {}).plan
    plan = replace(plan, k=max(plan.k, gate.k), compress=None, token_budget=None)
    serving, coming = open_store(collection), open_version(collection, index_version)
    now, then = (_rankings(store, _fitting(plan, store), questions, alive) for store in (serving, coming))
    name = f"{gate.measure}@{gate.k}"
    pairs = []
    for each, before, after in zip(questions, now, then, strict=True):
        scores = [retrieval_scores(keys, each.golden, gate.k)[name].value for keys in (before, after)]
        ranks = [FirstRanks.of(keys, each.golden).document for keys in (before, after)]
        pairs.append(QuestionPair(each, scores[0] or 0.0, scores[1] or 0.0, *ranks))
    return pairs


def _rankings(
    store: Store, plan: RetrievePlan, questions: Sequence[StoredQuestion], alive: Callable[[], object]
) -> list[list[str]]:
    """Each in a transaction of its own, so that a swap or a vacuum never waits for all of them."""
    embedder = None if plan.mode == "lexical" else store.embedder
    vectors = vectors_of((each.text for each in questions), embedder, alive=alive)
    as_it_is = WhatIf(store, Supposed())
    as_it_is.prepare(vectors, plan)
    result = []
    for each in questions:
        with transaction.atomic():
            best, _ = as_it_is.compare(each.text, plan, vectors.get(each.text))
        result.append(keys_of(best))
        alive()
    return result


def _fitting(plan: RetrievePlan, store: Store) -> RetrievePlan:
    """The plan, without the lexical list where the index version keeps none."""
    return plan if store.collection.hybrid_enabled or plan.mode == "vector" else replace(plan, mode="vector")


def _verdict(
    gate: PromotionGate, golden_set: GoldenSet, head: dict[str, Any], pairs: Sequence[QuestionPair]
) -> Verdict:
    before, after = [pair.before for pair in pairs], [pair.after for pair in pairs]
    difference = paired_difference(before, after)
    assert difference is not None
    passed = difference.mean >= -gate.margin - TOLERANCE
    differing = sorted(
        (pair for pair in pairs if pair.before != pair.after or pair.rank_before != pair.rank_after),
        key=lambda pair: (pair.after - pair.before, pair.question.pk),
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
