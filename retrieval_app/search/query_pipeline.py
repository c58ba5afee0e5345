"""Search and answers: one path for every channel, and a run kept of each."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from django.contrib.auth.models import AnonymousUser, User
from django.db import Error as DatabaseError
from django.db import connection, transaction
from opentelemetry.trace import Span

from collections_app.access.context import require, system_access
from collections_app.access.limits import count_tokens
from collections_app.access.permissions import Permission
from collections_app.chunks.finding_scan import policy_of
from collections_app.errors import ServiceError, describe, note_run
from collections_app.index.past_indexes import read_as_of
from collections_app.index.services import read_version
from collections_app.index.stores import embedder_for, read_store
from collections_app.models import ApiKey, Collection, Document
from collections_app.sources.models import FetchedSource
from ragd import telemetry
from ragd.conditions import DOCUMENT_FIELDS, compared_fields
from ragd.errors import InvalidInput
from ragd.normalization import has_visible, normalize
from ragd.search.candidates import keys_of, scores_of
from ragd.search.fusion import fuse
from ragd.search.retrieval import Retrieval, retrieve_detailed
from ragd.security.links import host_of
from ragd.store.store import Store
from ragd.types import SPEC_VERSION, Candidate, RetrievePlan
from retrieval_app.answers import protocol
from retrieval_app.answers.chat_answerer import DEFAULTS, ChatAnswerer, emit, open_answerer
from retrieval_app.answers.citations import Citation
from retrieval_app.answers.counting import Count, CountingAnswerer, count, declined_by, retrieve_counted
from retrieval_app.answers.extractive_answerer import ExtractiveAnswerer, says_how_many
from retrieval_app.answers.live_citations import pieces_of
from retrieval_app.llm.chat_model import ModelError, ModelParameters
from retrieval_app.models import Calibration, QueryRun
from retrieval_app.plans.services import open_corrector
from retrieval_app.runs.lineage import keep_run
from retrieval_app.search import inspection
from retrieval_app.search.fallbacks import Corrector, Retrieve, degrading, may_degrade, note_degraded

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
        keys = [protocol.chunk_key(found) for found in joined.candidates if found.collection == each.collection.name]
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


logger = logging.getLogger(__name__)

QUERY_CHARS_MAX = 20_000


class RunListener(protocol.AnswerListener, Protocol):
    """Told of a whole run while it is made."""

    def retrieved(self, run: QueryRun) -> None:
        """The results are there; the run is not stored yet."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """A search or a question, however it came in, and what was stated for it.

    plan_name: the saved plan that it began from. run_id: the id of the run; a new one when None. replay_of: the run
    that it repeats. conversation_id: the caller's name of the turns that it belongs to, for the run and its spans.
    as_of: over the collection as it was then (see `past_indexes.read_as_of` and what it raises); None: as it is.
    index_version: by that one instead of the one that serves (see `versions.read_version` and what it raises).
    beside: other collections to search too; nothing is counted or corrected then.
    calibrations: as `plans.services.ChosenPlan` has them.

    For an answer only: history: earlier turns, [{"role": "user" or "assistant", "content"}]; a chat model reads them,
    the search never. parameters: how a chat model is asked to write. corrective: whether to take the corrective step
    (docs/answering.md); None: as the collection says. quotes_on_failure: where the chat model fails, quotations
    answer, and error and error_type of the run say why.
    """

    collection: Collection
    query: str
    plan: RetrievePlan
    channel: str
    plan_name: str = ""
    user: User | AnonymousUser | None = None
    api_key: ApiKey | None = None
    run_id: UUID | None = None
    replay_of: UUID | None = None
    conversation_id: str | None = None
    as_of: datetime | None = None
    index_version: int | None = None
    beside: Sequence[Beside] = ()
    calibrations: Sequence[Calibration] | None = None
    llm_model: str | None = None
    system_prompt: str | None = None
    history: Sequence[Mapping[str, str]] = ()
    parameters: ModelParameters = DEFAULTS
    corrective: bool | None = None
    quotes_on_failure: bool = False


def search(request: QueryRequest, *, retrieve: Retrieve | None = None) -> QueryRun:
    """Retrieve by the plan and keep the run. A failure is kept too (status "error"), then raised.

    The run is of the `telemetry.environment` around the call, else of production.
    retrieve: in place of `retrieve_detailed`, to record what it makes (see
    `retrieval_app.playground.ranking.RetrievalRecorder`).
    A run that cannot be stored is logged, and the results are returned with `pk` None.
    """
    run = _open_run(QueryRun.Kind.SEARCH, request)
    with _recorded(run, request) as pipeline:
        corrects = False if request.beside else None
        fallback = degrading(run, retrieve or retrieve_detailed)
        corrector = open_corrector(
            request.collection, retrieve=fallback, corrects=corrects, calibrations=request.calibrations
        )
        _retrieve(run, request, pipeline, corrector)
    return run


def ask(request: QueryRequest, *, listener: RunListener | None = None, retrieve: Retrieve | None = None) -> QueryRun:
    """Search, then answer from what was found; every citation of the answer is checked. Kept like `search`.

    listener: told of the answer while it is made; where the collection redacts or refuses, only once it was inspected.
    status "abstained": the sources do not answer the question, and `answer` says so. ServiceError 422 where the
    corrective step is asked for and the collection is not calibrated.
    """
    collection = request.collection
    run = _open_run(QueryRun.Kind.ASK, request)
    run.system_prompt, run.history = request.system_prompt or "", [dict(turn) for turn in request.history]
    with _recorded(run, request) as pipeline:
        corrects = False if request.beside else request.corrective
        fallback = degrading(run, retrieve or retrieve_detailed)
        corrector = open_corrector(collection, retrieve=fallback, corrects=corrects, calibrations=request.calibrations)
        embedder = embedder_for(collection.embed_model, collection.embed_dims)
        answerer = open_answerer(
            embedder,
            llm_model=request.llm_model,
            system_prompt=run.system_prompt or None,
            history=run.history,
            parameters=request.parameters,
            conversation_id=request.conversation_id,
        )
        run.answerer = answerer.model
        is_past = request.as_of is not None or request.index_version is not None
        counting = _Counting(corrector, is_past=is_past, counts=not request.beside)
        retrieval = _retrieve(run, request, pipeline, counting)
        if counting.counted:
            run.answerer = CountingAnswerer.model
        if isinstance(answerer, ChatAnswerer):
            own = {item.doc_id for item in retrieval.candidates if not item.collection}
            answerer.own_hosts = fetched_hosts(collection.pk, own)
            answerer.dates = {} if is_past else Document.objects.dates_of(collection.pk, own)
        if listener:
            listener.retrieved(run)
        if isinstance(answerer, ExtractiveAnswerer):
            _spare_embedder(run, answerer)
        chosen = counting.answerer(answerer)
        try:
            _answer(run, collection, chosen, retrieval, pipeline, listener)
        except ServiceError as error:
            if not (request.quotes_on_failure and may_degrade(run) and error.type.startswith("llm_")):
                raise
            run.answerer, run.error_type, run.error = ExtractiveAnswerer.model, error.type, normalize(error.message)
            note_degraded(run, "model", error.message)
            inspection.hide_failed(run, collection)
            if listener:
                listener.restarted()
            quoting = ExtractiveAnswerer(embedder)
            _spare_embedder(run, quoting)
            _answer(run, collection, counting.answerer(quoting), retrieval, pipeline, listener)
        pipeline.finish(run.answer or "")
    return run


def _spare_embedder(run: QueryRun, answerer: ExtractiveAnswerer) -> None:
    """Where the embedder is away, the quotations are chosen without it."""
    if may_degrade(run):
        answerer.words_only = any(each["step"] == "embedder" for each in run.degraded)
        answerer.without_embedder = partial(note_degraded, run, "embedder")


class _Counting:
    """The corrective step, but for a question that asks for a number or a complete list: that is counted instead. What
    cannot be counted is answered like any other where a sentence says it, else declined."""

    def __init__(self, corrector: Corrector, *, is_past: bool, counts: bool) -> None:
        self.corrector, self.is_past, self.counts = corrector, is_past, counts
        self.counted: Count | None = None

    def retrieve(self, query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        if not self.counts:
            return self.corrector.retrieve(query, plan, store)
        self.counted = count(query, plan, store, is_past=self.is_past)
        if self.counted is not None and not self.counted.declined:
            return retrieve_counted(self.counted, query, plan, store)
        retrieval = self.corrector.retrieve(query, plan, store)
        refusal = self.counted or declined_by(query, retrieval)
        is_said = refusal is not None and says_how_many(query, retrieval.candidates, in_a_row=self.counted is None)
        self.counted = None if is_said else refusal
        return retrieval

    def note(self, run: QueryRun) -> None:
        if self.counted is None or self.counted.declined:
            self.corrector.note(run)

    def answerer(self, answerer: protocol.Answerer) -> protocol.Answerer:
        return CountingAnswerer(self.counted) if self.counted else self.corrector.answerer(answerer)


def _open_run(kind: str, request: QueryRequest) -> QueryRun:
    collection, plan, user, api_key = request.collection, request.plan, request.user, request.api_key
    require(Permission.ASK, collection.pk)
    run = QueryRun(
        kind=kind,
        collection=collection,
        collection_name=collection.name,
        query=normalize(request.query).strip(),
        plan=plan.as_dict(),
        plan_hash=plan.hash,
        plan_name=request.plan_name,
        replay_of=request.replay_of,
        conversation_id=normalize(request.conversation_id or ""),
        index_version=collection.index_version,
        embed_model=collection.embed_model,
        spec_version=SPEC_VERSION,
        channel=request.channel,
        environment=telemetry.current_environment() or telemetry.PRODUCTION,
        user_id=user.pk if isinstance(user, User) else api_key.user_id if api_key else None,
        api_key_label=api_key.label if api_key else "",
    )
    run.pk = request.run_id or run.pk
    return run


@contextmanager
def _recorded(run: QueryRun, request: QueryRequest) -> Iterator[telemetry.Pipeline]:
    """The root span and the stored run around one inspected query, whatever happens inside. What is raised names the
    run."""
    collection = request.collection
    began = time.perf_counter()
    failure: Exception | None = None
    try:
        with (
            inspection.guarded(run, collection),
            telemetry.spending() as spent,
            telemetry.pipeline_span(
                name_of(collection, request.beside),
                run.query,
                telemetry.QueryOrigin(
                    run_id=str(run.pk),
                    channel=run.channel,
                    user_id=str(run.user_id) if run.user_id else run.api_key_label or None,
                    session_id=run.conversation_id or None,
                    api_key=run.api_key_label or None,
                ),
                tags=(run.kind, run.channel),
                metadata={"kind": run.kind, "mode": run.plan["mode"], "plan_hash": run.plan_hash},
                own_trace=run.environment == QueryRun.Environment.EVALUATION,
            ) as pipeline,
        ):
            run.trace_id, run.root_span_id = pipeline.trace_id, pipeline.span_id
            try:
                _check_query(run.query)
                inspection.inspect_query(run, collection, pipeline.span)
                yield pipeline
            finally:
                run.cost_usd = spent.total_usd
                steps = [each["step"] for each in run.degraded]
                telemetry.record_counts(pipeline.span, degraded=steps or None)
                count_tokens(spent.tokens)
    except inspection.Refused as refusal:
        run.status, run.error_type, run.error = QueryRun.Status.REFUSED, refusal.type, refusal.message
        failure = refusal
        raise
    except Exception as error:
        run.status = QueryRun.Status.ERROR
        run.error_type = describe(error)[1]["error"]["type"]
        run.error = normalize(str(error))
        if isinstance(error, ModelError) and error.partial and not inspection.holds_back(collection):
            run.answer = normalize(error.partial.text)
        inspection.hide_failed(run, collection)
        failure = error
        raise
    finally:
        run.timings_ms["total"] = _since_ms(began)
        _store_run(run)
        if failure is not None and run.pk is not None:
            note_run(failure, run.pk)


def _store_run(run: QueryRun) -> None:
    run_id = run.pk
    try:
        # the server's record of what was asked and allowed, also where the asker may read less of it by now
        with system_access(), transaction.atomic() if connection.in_atomic_block else nullcontext():
            keep_run(run)
    except (DatabaseError, ValueError, TypeError):
        logger.exception("run %s of %r was answered and could not be stored", run_id, run.collection_name)
        run.pk = None


def _retrieve(
    run: QueryRun, request: QueryRequest, pipeline: telemetry.Pipeline, corrector: Corrector | _Counting
) -> Retrieval:
    """What was found, as far as the collection lets it be kept and read."""
    collection, plan, beside = request.collection, request.plan, request.beside
    as_of, index_version = request.as_of, request.index_version

    def read(store: Store) -> tuple[dict[str, object], Retrieval]:
        run.index_version, run.embed_model = store.collection.index_version, store.collection.embed_model
        retrieval = corrector.retrieve(run.query, plan, store)
        return describe_state(store, retrieval), retrieval

    if as_of is not None:
        _check_past_filter(plan)
        if beside or index_version is not None:
            raise InvalidInput(
                "as_of is of one collection and its index version of then; choose one collection and no index version,"
                " or leave as_of out",
                field="as_of",
            )
    if index_version is not None:
        run.store_state, result = read_version(collection, index_version, read)
    elif as_of is None:
        run.store_state, result = read_store(collection, read, without=partial(note_degraded, run, "replica"))
    else:
        past, (state, result) = read_as_of(collection, as_of, read)
        run.store_state, run.index_version = state | past.as_dict(), past.index_version
    corrector.note(run)
    retrieval = inspection.inspect_sources(run, collection, pipeline.span, result)
    if beside:
        retrieval = search_beside(run, retrieval, beside, pipeline.span)
    results = [
        protocol.result_dict(candidate, rank, None if candidate.collection else retrieval.links.get(candidate.key))
        for rank, candidate in enumerate(retrieval.candidates, 1)
    ]
    compresses = retrieval.tokens_before is not None
    run.results = protocol.with_spans(results, retrieval.spans) if compresses else results
    if compresses:
        run.compression = {"tokens_before": retrieval.tokens_before, "tokens_after": retrieval.tokens_after}
    run.retrieved_ids = [protocol.chunk_key(candidate) for candidate in retrieval.candidates]
    run.lists = {
        name: [
            [f"{doc_id}#{number}", score]
            for (doc_id, number), score in zip(keys_of(candidates), scores_of(candidates), strict=True)
        ]
        for name, candidates in retrieval.lists.items()
    }
    run.short_result = retrieval.short_result.as_dict() if retrieval.short_result else None
    run.exact_used = retrieval.exact
    run.timings_ms |= retrieval.timings_ms
    return retrieval


def _check_past_filter(plan: RetrievePlan) -> None:
    """Titles and times of documents are those of now: a search of the past by them would be wrong."""
    fields = sorted({each.field for each in compared_fields(plan.filters.where)} & DOCUMENT_FIELDS)
    if fields:
        raise InvalidInput(
            f"filter compares {fields[0]}, which is not kept for earlier times; leave it out, or search without as_of",
            field="filter",
        )


def _check_query(query: str) -> None:
    if not has_visible(query):
        raise InvalidInput("query must hold at least one visible character; it is empty", field="query")
    if len(query) > QUERY_CHARS_MAX:
        raise InvalidInput(
            f"query must be at most {QUERY_CHARS_MAX} characters, not {len(query)}; shorten it", field="query"
        )


def _answer(
    run: QueryRun,
    collection: Collection,
    answerer: protocol.Answerer,
    retrieval: Retrieval,
    pipeline: telemetry.Pipeline,
    listener: protocol.AnswerListener | None,
) -> None:
    began = time.perf_counter()
    sources = inspection.readable(collection, retrieval)
    live = None if inspection.holds_back(collection) else listener
    draft: protocol.Draft = answerer.answer(run.query, sources.candidates, sources.spans, listener=live)
    run.timings_ms["answer"] = _since_ms(began)
    if draft.first_token_ms is not None:
        run.timings_ms["first_token"] = round(draft.first_token_ms, 3)
    used_sources = sources.candidates[: draft.sources_given]
    _keep_answer(run, draft, used_sources)
    texts = [source.content for source in used_sources]
    wrote = inspection.Written(answerer.instructions, draft.code, draft.removed)
    inspection.inspect_answer(run, collection, pipeline.span, wrote, known=texts)
    if listener and not draft.was_told:
        emit(pieces_of(run.answer or "", [Citation(**item) for item in run.citations]), listener)


def fetched_hosts(collection_id: int, doc_ids: Iterable[str]) -> frozenset[str]:
    """The hosts of the web pages that these documents were fetched from."""
    rows = FetchedSource.objects.pages_of(collection_id, doc_ids)
    return frozenset(host for row in rows for address in row if (host := host_of(address)))


def _keep_answer(run: QueryRun, draft: protocol.Draft, candidates: Sequence[Candidate]) -> None:
    checked = draft.checked
    run.answer = checked.answer
    run.status = QueryRun.Status.ABSTAINED if draft.abstained else QueryRun.Status.OK
    run.citations = [citation.as_dict() for citation in checked.citations]
    run.sentences = [sentence.as_dict() for sentence in checked.sentences]
    run.removed_citations = checked.removed_count
    run.evidence = draft.evidence
    run.token_usage = draft.usage.as_dict()
    run.sources = [
        protocol.source_dict(marker, source, checked.citations) for marker, source in enumerate(candidates, 1)
    ]


def _since_ms(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)


def describe_state(store: Store, retrieval: Retrieval) -> dict[str, Any]:
    """{"index_version", "chunks", "lexemes", "documents_changed_at" (ISO 8601, None without documents)}: what the
    retrieval read.

    Every write moves at least one of them: a new or changed document has a later time, a deleted one takes its chunks
    along.
    """
    state = retrieval.state or store.state()
    changed_at = state.documents_changed_at
    return {
        "index_version": store.collection.index_version,
        "chunks": state.open_count,
        "lexemes": state.length_total,
        "documents_changed_at": changed_at.isoformat() if changed_at else None,
    }
