"""From labelled retrievals to weights and thresholds, and how well those tell retrievals that they were not fitted on.

A list is one retrieval of one question: the features of its passages, which of them are expected, and whether any is.
A question that expects something and finds it gives two: what was found, and the same pool as if the expected documents
were not there, since a set of good questions alone never shows what a miss looks like.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from django.db import transaction

from collections_app.access.context import system_access
from collections_app.audit import services
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.models import Collection
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import asked_questions, keep_version
from evaluation_app.judges.feature_model import fit_logistic
from evaluation_app.measures.statistics import auroc
from evaluation_app.models import GoldenSet
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.search.retrieval import retrieve_detailed, with_rows
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan
from retrieval_app.plans.services import choose_plan, keep_calibration
from retrieval_app.search.confidence import ACTIONS, FEATURES, Action, Measured, Row, Rule, Weights

RIDGE = 1.0
FOLDS = 5
TARGET = 0.9
SIDE_MIN = 5  # lists on one side of a threshold, so that one lucky list makes none
LISTS_MIN = 20
Z = 1.959964  # of a 95 % interval
POOL = 100  # rows per list, so that enough is left when the expected documents are taken out


@dataclass(frozen=True, slots=True)
class LabelledList:
    """rows: FEATURES by rank. labels: 1 for a passage that is expected, 0 for one that is not, None for one of an
    expected document that need not be the place itself. answers: whether the list holds what is expected."""

    question: str
    rows: tuple[Row, ...]
    labels: tuple[int | None, ...]
    answers: bool


@dataclass(frozen=True, slots=True)
class FittedRule:
    rule: Rule
    figures: dict[str, Any]


def fit(lists: Sequence[LabelledList], *, target: float = TARGET) -> FittedRule:
    """The rule of all lists, with the figures of FOLDS-fold cross-validation by question.

    target: the least share of lists called correct that answer, and of lists called incorrect that do not, on the data
    of the fit. Raises ValueError for fewer than LISTS_MIN lists, or lists of one kind alone.
    """
    answering = sum(item.answers for item in lists)
    if len(lists) < LISTS_MIN or not SIDE_MIN <= answering <= len(lists) - SIDE_MIN:
        raise ValueError(
            f"at least {LISTS_MIN} retrievals are needed, {SIDE_MIN} of them with what is expected and {SIDE_MIN} "
            f"without; there are {answering} with and {len(lists) - answering} without"
        )
    return FittedRule(fit_rule(lists, target), held_out_figures(lists, target))


def fit_rule(lists: Sequence[LabelledList], target: float) -> Rule:
    weights = fit_weights(lists)
    scores = [confidence(weights, item) for item in lists]
    upper, lower = thresholds(scores, [item.answers for item in lists], target)
    return Rule(weights, upper, lower)


def fit_weights(lists: Sequence[LabelledList]) -> Weights:
    """Ridge logistic regression over the labelled passages; every list weighs the same, whatever its length."""
    rows, labels, shares = [], [], []
    for item in lists:
        labelled = [(row, label) for row, label in zip(item.rows, item.labels, strict=True) if label is not None]
        for row, label in labelled:
            rows.append(row)
            labels.append(label)
            shares.append(1 / len(labelled))
    model = fit_logistic(FEATURES, np.asarray(rows, dtype=np.float64), labels, ridge=RIDGE, weights=shares)
    return Weights(model.intercept, model.coefficients, model.means, model.scales)


def confidence(weights: Weights, item: LabelledList) -> float:
    return max((weights.probability(row) for row in item.rows), default=0.0)


def thresholds(scores: Sequence[float], answers: Sequence[bool], target: float) -> tuple[float | None, float | None]:
    """(upper, lower), halfway between two scores. None where no place parts at least SIDE_MIN lists at the target.

    upper: under the lowest list that answers from which on at least the target's share of lists answer. lower: over the
    highest list that does not answer up to which at least that share do not. Where they cross, lower comes down to
    upper: all lists are decided.
    """
    pairs = sorted(zip(scores, answers, strict=True))
    upper = lower = None
    for index, (score, does_answer) in enumerate(pairs):
        above = [answer for other, answer in pairs if other >= score]
        upto = [answer for other, answer in pairs if other <= score]
        if does_answer and upper is None and len(above) >= SIDE_MIN and sum(above) >= target * len(above):
            upper = (score + max((other for other, _ in pairs[:index] if other < score), default=score)) / 2
        if not does_answer and len(upto) >= SIDE_MIN and len(upto) - sum(upto) >= target * len(upto):
            lower = (score + min((other for other, _ in pairs[index:] if other > score), default=1.0)) / 2
    return upper, lower if lower is None or upper is None else min(lower, upper)


def held_out_figures(lists: Sequence[LabelledList], target: float) -> dict[str, Any]:
    """What rules say of the questions of a fold that were fitted on the others.

    {"lists", "answering", "folds", "target", "auroc" (None without both kinds), "actions": {action: {"answering",
    "not_answering"}}, "correct" and "incorrect": share of those called so that are, "decided": share that is not called
    ambiguous, "right": share of the decided that is right}; shares as `share` gives them.
    """
    details: list[tuple[float, Action, bool]] = []
    for fold in range(FOLDS):
        held_out = [item for item in lists if fold_of(item.question) == fold]
        rest = [item for item in lists if fold_of(item.question) != fold]
        if not held_out or len({item.answers for item in rest}) < 2:
            continue
        rule = fit_rule(rest, target)
        for item in held_out:
            scores = [rule.weights.probability(row) for row in item.rows]
            details.append((max(scores, default=0.0), rule.action(scores), item.answers))
    counts = {
        action: {
            "answering": sum(message == action and answers for _, message, answers in details),
            "not_answering": sum(message == action and not answers for _, message, answers in details),
        }
        for action in ACTIONS
    }
    correct, incorrect = counts["correct"], counts["incorrect"]
    decided = sum(correct.values()) + sum(incorrect.values())
    return {
        "lists": len(details),
        "answering": sum(answers for _, _, answers in details),
        "folds": FOLDS,
        "target": target,
        "auroc": auroc([score for score, _, _ in details], [answers for _, _, answers in details]),
        "actions": counts,
        "correct": share(correct["answering"], sum(correct.values())),
        "incorrect": share(incorrect["not_answering"], sum(incorrect.values())),
        "decided": share(decided, len(details)),
        "right": share(correct["answering"] + incorrect["not_answering"], decided),
    }


def fold_of(question: str) -> int:
    """By the hash of the text, so that the order of a set decides nothing."""
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") % FOLDS


def share(right: int, total: int) -> dict[str, Any]:
    """{"right", "of", "share", "low", "high"}: with Wilson's 95 % interval (1927); the last three None for 0 of 0."""
    if not total:
        return {"right": 0, "of": 0, "share": None, "low": None, "high": None}
    value = right / total
    scale = 1 + Z * Z / total
    middle = (value + Z * Z / (2 * total)) / scale
    reach = Z * sqrt(value * (1 - value) / total + Z * Z / (4 * total * total)) / scale
    return {
        "right": right,
        "of": total,
        "share": value,
        "low": max(0.0, middle - reach),
        "high": min(1.0, middle + reach),
    }


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """What a fit gave. data: as `retrieval_app.models.Calibration` keeps it."""

    fitted: FittedRule
    data: dict[str, Any]


def calibrate(
    collection: Collection,
    golden_set: GoldenSet,
    *,
    unanswerable: Sequence[GoldenSet] = (),
    plan: RetrievePlan | None = None,
    target: float = TARGET,
    keep: bool = True,
    actor: services.Actor = None,
) -> CalibrationResult:
    """Fit weights and thresholds on the set's questions, and keep them for the collection unless `keep` is False.

    unanswerable: sets of other collections, whose questions nothing here answers; without any, a miss is known from
    documents beside the expected ones alone. plan: by which the questions are asked; None: the one that every channel
    begins with. Raises ServiceError 422 for a set of another collection or with too few questions, InvalidInput for a
    target that is no share above one half.
    """
    if golden_set.collection_name != collection.name:
        raise ServiceError(
            f"set {golden_set.name!r} is of collection {golden_set.collection_name!r}, not of {collection.name!r}; "
            "name a set of this collection",
            type="other_collection",
            status=422,
            field="set",
        )
    if not 0.5 < target <= 1:
        raise InvalidInput(f"target must be above 0.5 and at most 1, not {target}", field="target")
    chosen = plan or choose_plan(collection, None, {}).plan
    golden_set_version = keep_version(golden_set, reason="calibration", actor=actor)
    # of all documents, as everybody searches by what is fitted
    with system_access(), telemetry.silenced(), transaction.atomic():
        questions = [golden for _, golden in asked_questions(golden_set)]
        strange = [Golden(golden.question) for other in unanswerable for _, golden in asked_questions(other)]
        store = open_store(collection)
        lists = label_questions([*questions, *strange], chosen, store)
        index_version = store.collection.index_version
    try:
        fitted = fit(lists, target=target)
    except ValueError as error:
        raise ServiceError(
            f"set {golden_set.name!r} cannot calibrate {collection.name!r}: {error}; add questions",
            type="too_few_questions",
            status=422,
            field="set",
        ) from error
    data = {
        "set": golden_set.name,
        "version": golden_set_version.version,
        "digest": golden_set_version.digest,
        "questions": len(questions),
        "unanswerable": {other.name: other.version for other in unanswerable},
        "unanswerable_questions": len(strange),
        "lists": len(lists),
        "plan": chosen.as_dict(),
        "plan_hash": chosen.hash,
        "index_version": index_version,
    }
    if keep:
        keep_calibration(
            collection, fitted.rule, embed_model=collection.embed_model, data=data, figures=fitted.figures, actor=actor
        )
    return CalibrationResult(fitted, data)


def label_questions(questions: Sequence[Golden], plan: RetrievePlan, store: Store) -> list[LabelledList]:
    """One or two lists per question, in order (see `fitting`). Must run in a transaction."""
    wide = replace(plan, candidate_pool=max(plan.pool, POOL), compress=None, token_budget=None)
    lists = []
    for golden in questions:
        pool = with_rows(retrieve_detailed(golden.question, wide, store), store).reranked
        expected = set(golden.relevant_docs)
        result = pool[: plan.k]
        without = [item for item in pool if item.doc_id not in expected][: plan.k]
        measured = Measured(golden.question, store)
        one = label_list(golden, result, measured)
        lists.append(one)
        if one.answers:
            lists.append(label_list(golden, without, measured))
    return lists


def label_list(golden: Golden, candidates: Sequence[Candidate], measured: Measured) -> LabelledList:
    """Where chunks are expected, those count; of an expected document without any, the first chunk that was found."""
    rows = measured.of_candidates(candidates)
    chunks, docs = set(golden.expected_chunks), set(golden.relevant_docs)
    named = {chunk.rpartition("#")[0] for chunk in chunks}
    labels: list[int | None] = []
    seen: set[str] = set()
    for item in candidates:
        if f"{item.doc_id}#{item.chunk_index}" in chunks:
            labels.append(1)
        elif item.doc_id not in docs:
            labels.append(0)
        else:
            labels.append(1 if item.doc_id not in named and item.doc_id not in seen else None)
            seen.add(item.doc_id)
    return LabelledList(golden.question, tuple(rows), tuple(labels), 1 in labels)
