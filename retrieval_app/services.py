"""Search and answers: one path for every door, and a run kept of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import Error as DatabaseError
from django.db import transaction
from django.utils import timezone

from collections_app.errors import describe
from collections_app.identity import clean_metadata, clean_tags
from collections_app.models import ApiKey, Collection
from collections_app.stores import embedder_for, open_store
from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.normalization import normalize
from ragd.retrieval import Retrieval, retrieve_detailed
from ragd.store import Store
from ragd.types import CANDIDATE_POOL, FINAL_K, RRF_K, SPEC_VERSION, Exact, Filters, Mode, RetrievePlan
from retrieval_app.answering import Answerer, Draft, open_answerer
from retrieval_app.models import QueryRun
from retrieval_app.results import chunk_key, result_dict, source_dict

logger = logging.getLogger(__name__)

QUERY_CHARS_MAX = 20_000
DELETE_BATCH = 500


def build_plan(
    collection: Collection,
    *,
    mode: Mode | None = None,
    k: int = FINAL_K,
    candidate_pool: int = CANDIDATE_POOL,
    rrf_k: int = RRF_K,
    exact: Exact = "auto",
    tags_any: Sequence[str] = (),
    tags_all: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
) -> RetrievePlan:
    """The one plan that every door builds. mode None: hybrid where the collection keeps a lexical index, else vector.

    Raises InvalidInput that names the field.
    """
    return RetrievePlan(
        mode=mode or ("hybrid" if collection.hybrid_enabled else "vector"),
        k=k,
        candidate_pool=candidate_pool,
        rrf_k=rrf_k,
        exact=exact,
        filters=Filters(_clean("tags_any", tags_any), _clean("tags_all", tags_all), clean_metadata(metadata)),
    )


def _clean(field: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Tags in the form in which documents keep them. A blank one is an error: ignoring it would widen the search."""
    if any(not clean_tags([tag]) for tag in tags):
        raise InvalidInput(f"{field} must hold tags with at least one visible character; one is empty", field=field)
    return clean_tags(tags)


def search(
    collection: Collection,
    query: str,
    plan: RetrievePlan,
    *,
    door: str,
    user: User | AnonymousUser | None = None,
    api_key: ApiKey | None = None,
) -> QueryRun:
    """Retrieve by the plan and keep the run. A failure is kept too (status "error"), then raised.

    A run that cannot be stored is logged, and the results are returned with `pk` None.
    """
    run = _open_run(QueryRun.Kind.SEARCH, collection, query, plan, door=door, user=user, api_key=api_key)
    with _recorded(run, collection):
        _retrieve(run, open_store(collection), plan)
    return run


def ask(
    collection: Collection,
    query: str,
    plan: RetrievePlan,
    *,
    door: str,
    llm_model: str | None = None,
    system_prompt: str | None = None,
    user: User | AnonymousUser | None = None,
    api_key: ApiKey | None = None,
) -> QueryRun:
    """Search, then answer from what was found; every citation of the answer is checked. Kept like `search`.

    status "abstained": the sources do not answer the question, and `answer` says so.
    """
    run = _open_run(QueryRun.Kind.ASK, collection, query, plan, door=door, user=user, api_key=api_key)
    run.system_prompt = system_prompt or ""
    with _recorded(run, collection) as pipeline:
        store = open_store(collection)
        embedder = embedder_for(collection.embed_model, collection.embed_dims)
        answerer = open_answerer(embedder, llm_model=llm_model, system_prompt=system_prompt)
        run.answerer = answerer.model
        retrieval = _retrieve(run, store, plan)
        _answer(run, answerer, retrieval)
        pipeline.finish(run.answer or "")
    return run


def delete_old_runs(days: int | None = None) -> int:
    """Delete runs older than `days` (RAGD_RUN_RETENTION_DAYS; 0 keeps all) in batches; returns how many went."""
    keep_days = settings.RAGD_RUN_RETENTION_DAYS if days is None else days
    if not keep_days:
        return 0
    moment, deleted = timezone.now() - timedelta(days=keep_days), 0
    while batch := list(QueryRun.objects.older_than(moment).values_list("pk", flat=True)[:DELETE_BATCH]):
        deleted += QueryRun.objects.filter(pk__in=batch).delete()[0]
    return deleted


def _open_run(
    kind: str,
    collection: Collection,
    query: str,
    plan: RetrievePlan,
    *,
    door: str,
    user: User | AnonymousUser | None,
    api_key: ApiKey | None,
) -> QueryRun:
    return QueryRun(
        kind=kind,
        collection=collection,
        collection_name=collection.name,
        query=normalize(query).strip(),
        plan=plan.as_dict(),
        plan_hash=plan.hash,
        generation=collection.generation,
        embed_model=collection.embed_model,
        spec_version=SPEC_VERSION,
        door=door,
        user=user if isinstance(user, User) else None,
        api_key_label=api_key.label if api_key else "",
    )


@contextmanager
def _recorded(run: QueryRun, collection: Collection) -> Iterator[telemetry.Pipeline]:
    """The root span and the stored run around one query, whatever happens inside."""
    began = time.perf_counter()
    try:
        user_id = str(run.user_id) if run.user_id else run.api_key_label or None
        with telemetry.pipeline_span(
            collection.name, run.query, run_id=str(run.pk), door=run.door, user_id=user_id
        ) as pipeline:
            run.trace_id = pipeline.trace_id
            yield pipeline
    except Exception as error:
        run.status = QueryRun.Status.ERROR
        run.error_type = describe(error)[1]["error"]["type"]
        run.error = normalize(str(error))
        raise
    finally:
        run.timings_ms["total"] = _since_ms(began)
        _store_run(run)


def _store_run(run: QueryRun) -> None:
    run_id = run.pk
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except (DatabaseError, ValueError, TypeError):
        logger.exception("run %s of %r was answered and could not be stored", run_id, run.collection_name)
        run.pk = None


def _retrieve(run: QueryRun, store: Store, plan: RetrievePlan) -> Retrieval:
    _check_query(run.query)
    with transaction.atomic():
        retrieval = retrieve_detailed(run.query, plan, store)
    run.results = [result_dict(candidate, rank) for rank, candidate in enumerate(retrieval.candidates, 1)]
    run.retrieved_ids = [chunk_key(candidate) for candidate in retrieval.candidates]
    run.lists = {
        name: [[chunk_key(candidate), candidate.score] for candidate in candidates]
        for name, candidates in retrieval.lists.items()
    }
    run.short_result = retrieval.short_result.as_dict() if retrieval.short_result else None
    run.exact_used = retrieval.exact
    run.timings_ms |= retrieval.timings_ms
    return retrieval


def _check_query(query: str) -> None:
    if not query:
        raise InvalidInput("query must hold at least one visible character; it is empty", field="query")
    if len(query) > QUERY_CHARS_MAX:
        raise InvalidInput(
            f"query must be at most {QUERY_CHARS_MAX} characters, not {len(query)}; shorten it", field="query"
        )


def _answer(run: QueryRun, answerer: Answerer, retrieval: Retrieval) -> None:
    began = time.perf_counter()
    draft: Draft = answerer.answer(run.query, retrieval.candidates)
    run.timings_ms["answer"] = _since_ms(began)
    checked = draft.checked
    run.answer = checked.answer
    run.status = QueryRun.Status.ABSTAINED if draft.abstained else QueryRun.Status.OK
    run.citations = [citation.as_dict() for citation in checked.citations]
    run.sentences = [sentence.as_dict() for sentence in checked.sentences]
    run.removed_citations = checked.removed_count
    run.retrieval_confidence = draft.evidence
    run.token_usage = draft.usage.as_dict()
    given = retrieval.candidates[: draft.sources_given]
    run.sources = [source_dict(marker, source, checked.citations) for marker, source in enumerate(given, 1)]


def _since_ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)
