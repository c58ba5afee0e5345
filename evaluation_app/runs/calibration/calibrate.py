"""Calibrate a collection on a golden set: retrieve its questions, label what comes back, fit, keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction

from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.services.governance import audit
from collections_app.stores import open_store
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.versions import asked_questions, keep_version
from evaluation_app.models import GoldenSet
from evaluation_app.runs.calibration.fitting import TARGET, Fitted, LabelledList, fit
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.search.retrieval import retrieve_detailed
from ragd.store.store import Store
from ragd.types import Candidate, RetrievePlan
from retrieval_app.confidence.evaluator import Measured
from retrieval_app.corrective.calibrations import keep_calibration
from retrieval_app.runs.plans import choose_plan

POOL = 100  # rows per list, so that enough is left when the expected documents are taken out


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a fit gave. data: as `retrieval_app.models.Calibration` keeps it."""

    fitted: Fitted
    data: dict[str, Any]


def calibrate(
    collection: Collection,
    golden_set: GoldenSet,
    *,
    unanswerable: Sequence[GoldenSet] = (),
    plan: RetrievePlan | None = None,
    target: float = TARGET,
    keep: bool = True,
    actor: audit.Actor = None,
) -> Calibrated:
    """Fit weights and thresholds on the set's questions, and keep them for the collection unless `keep` is False.

    unanswerable: sets of other collections, whose questions nothing here answers; without any, a miss is known from
    documents beside the expected ones alone. plan: by which the questions are asked; None: the one that every door
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
    questions = [golden for _, golden in asked_questions(golden_set)]
    strange = [Golden(golden.question) for other in unanswerable for _, golden in asked_questions(other)]
    with telemetry.silenced(), transaction.atomic():
        store = open_store(collection)
        lists = label_questions([*questions, *strange], chosen, store)
        generation = store.collection.generation
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
        "generation": generation,
    }
    if keep:
        keep_calibration(
            collection, fitted.rule, embed_model=collection.embed_model, data=data, figures=fitted.figures, actor=actor
        )
    return Calibrated(fitted, data)


def label_questions(questions: Sequence[Golden], plan: RetrievePlan, store: Store) -> list[LabelledList]:
    """One or two lists per question, in order (see `fitting`). Must run in a transaction."""
    wide = replace(plan, candidate_pool=max(plan.pool, POOL), compress=None, token_budget=None)
    lists = []
    for golden in questions:
        pool = retrieve_detailed(golden.question, wide, store).reranked
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
