"""Several collections searched at once: each by its own settings and permissions, their ranks fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.trace import Span

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.chunks.finding_scan import policy_of
from collections_app.errors import ServiceError
from collections_app.index.stores import read_store
from collections_app.models import Collection
from ragd.search.fusion import fuse
from ragd.search.retrieval import Retrieval, retrieve_detailed
from ragd.types import Candidate, RetrievePlan
from retrieval_app.answers.result_records import chunk_key
from retrieval_app.models import QueryRun
from retrieval_app.search import inspection
from retrieval_app.search.degrading import degrading

THREAD = "thread"  # the key of metadata that names the thread of its files
NAMES_JOINED = " + "  # no collection has a name with blanks


@dataclass(frozen=True, slots=True)
class Beside:
    """A collection that is searched beside the run's own, and the plan for it."""

    collection: Collection
    plan: RetrievePlan


def lead_first(collections: Sequence[Collection]) -> list[Collection]:
    """The same, the one whose guardrails hold for question and answer first; else in their order.

    Raises ServiceError 422 where guardrails of more than one act, and differ.
    """
    acting = [each for each in collections if policy_of(each).acts]
    if len({policy_of(each) for each in acting}) > 1:
        names = ", ".join(repr(each.name) for each in acting)
        raise ServiceError(
            f"the guardrails of {names} differ, so that they cannot be asked together; ask them one after the other",
            type="guardrails_differ",
            status=422,
            field="collection",
        )
    return [*acting, *(each for each in collections if each not in acting)]


def name_of(collection: Collection, beside: Sequence[Beside]) -> str:
    """What spans call the collections of a run: with more than one no collection's name, so that the spans are seen
    with the run alone."""
    return NAMES_JOINED.join([collection.name, *(each.collection.name for each in beside)])


def search_beside(run: QueryRun, own: Retrieval, beside: Sequence[Beside], span: Span) -> Retrieval:
    """The retrieval of the run's own collection with what the others hold, as many candidates as its plan asks for.

    Raises Forbidden without the permission to ask in one of them. run.elsewhere says what came from where.
    """
    plan = RetrievePlan.from_dict(run.plan)
    retrievals = [("", own)]
    for each in beside:
        require(Permission.ASK, each.collection.pk)
        by = replace(each.plan, compress=plan.compress, token_budget=plan.token_budget)
        result: Retrieval = read_store(
            each.collection,
            lambda store, by=by: degrading(run, retrieve_detailed)(run.query, by, store),  # type: ignore[misc]
        )
        inspected = inspection.inspect_sources(run, each.collection, span, result)
        retrievals.append((each.collection.name, inspection.readable(each.collection, inspected)))
    joined = _join(retrievals, plan.k)
    for each in beside:
        keys = [chunk_key(found) for found in joined.candidates if found.collection == each.collection.name]
        only = {"files": True} if THREAD in each.plan.filters.metadata else {}  # of a thread, and nobody chose them
        run.elsewhere[str(each.collection.pk)] = {"name": each.collection.name, "keys": keys} | only
    return joined


def _join(retrievals: Sequence[tuple[str, Retrieval]], k: int) -> Retrieval:
    """By reciprocal rank fusion of the final lists; ties by the order of the collections, then as everywhere."""
    places: dict[tuple[str, int], tuple[int, int]] = {}
    lists: dict[str, list[Candidate]] = {}
    for number, (name, retrieval) in enumerate(retrievals):
        marked = []
        for place, found in enumerate(retrieval.candidates, 1):
            own_key = f"{number:04}/{found.doc_id}"  # two collections may have the same document ID
            places[own_key, found.chunk_index] = (number, place)
            marked.append(replace(found, doc_id=own_key, collection=name))
        lists[name or "own"] = marked
    fused = fuse(lists)[:k]
    ranks = {places[found.key]: rank for rank, found in enumerate(fused, 1)}
    spans: list[dict[str, Any]] = []
    for number, (_, retrieval) in enumerate(retrievals):
        kept = [span for span in retrieval.spans if (number, span["rank"]) in ranks]
        spans += [span | {"rank": ranks[number, span["rank"]]} for span in kept]
    timings: Counter[str] = Counter()
    for _, retrieval in retrievals:
        timings.update(retrieval.timings_ms)
    before = [each.tokens_before for _, each in retrievals if each.tokens_before is not None]
    after = [each.tokens_after for _, each in retrievals if each.tokens_after is not None]
    return replace(
        retrievals[0][1],
        candidates=[replace(found, doc_id=found.doc_id.partition("/")[2]) for found in fused],
        spans=sorted(spans, key=lambda kept: (kept["rank"], kept["start"])),
        tokens_before=sum(before) if before else None,
        tokens_after=sum(after) if after else None,
        short_result=None if len(fused) >= k else retrievals[0][1].short_result,
        timings_ms=dict(timings),
    )
