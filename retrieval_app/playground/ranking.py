"""Why this ranking: every stage, the arithmetic of every row, what was lost and why, the SQL that ran.

`RetrievalRecorder` retrieves by the same `retrieve_detailed` as every channel, for a run or for `explain`, and records
its lists: those behind the pool, those without filters, those of disabled chunks, the vector list by the other scan.
Everything in an explanation is read from this record. Nothing is written, and what the explanation itself asks of the
database leaves no span.

Ranked lists side by side, and the lines that join the same chunk in neighbouring lists.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal, cast

from django.db import transaction
from django.utils.translation import gettext_noop

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.chunks.finding_scan import policy_of
from collections_app.documents.filters import write_filter
from collections_app.index.past_indexes import read_as_of
from collections_app.index.services import read_version
from collections_app.index.stores import open_store, reading
from collections_app.models import Collection, Document
from ragd import telemetry
from ragd.conditions import first_failure
from ragd.insight.ranking_comparison import overlap_at, recall_of
from ragd.insight.score_parts import QueryWord, cosine_parts, find_words, query_words, word_shares, written_forms
from ragd.insight.what_if import disabled_candidates, would_be_rank
from ragd.normalization import normalize
from ragd.search.compression import CompressPolicy, compress
from ragd.search.hops import add_codes
from ragd.search.retrieval import ListRecord, Retrieval, read_lists, retrieve_detailed, with_rows
from ragd.search.vector_search import read_state, vector_list
from ragd.store.store import Store
from ragd.types import CODES, HOP_LISTS, Candidate, Filters, RetrievePlan
from retrieval_app.answers.citations import page_of
from retrieval_app.answers.protocol import chunk_key, title_of
from retrieval_app.playground import sql_statements
from retrieval_app.playground.score_arithmetic import Parts, ask_reranker, fused_terms, row_arithmetic

Reason = Literal[
    "filtered", "disabled", "below_pool", "not_in_list", "missed_by_index", "cut_by_k", "cut_by_rerank", "over_budget",
    "no_span", "shortened",
]  # fmt: skip

# in the order in which they matter to somebody who misses a result
REASONS: Mapping[Reason, str] = {
    "filtered": gettext_noop("Excluded by a filter"),
    "disabled": gettext_noop("Disabled"),
    "cut_by_rerank": gettext_noop("Below k after reranking"),
    "missed_by_index": gettext_noop("Missed by the index"),
    "over_budget": gettext_noop("Over max context tokens"),
    "no_span": gettext_noop("Removed by compression"),
    "shortened": gettext_noop("Shortened by compression"),
    "cut_by_k": gettext_noop("Below k"),
    "below_pool": gettext_noop("Outside top N"),
    "not_in_list": gettext_noop("Not in both lists"),
}
FILTERED_MIN = 10  # so many places of an unfiltered list are looked at, or k if that is more


@dataclass(frozen=True, slots=True)
class DroppedCandidate:
    """A chunk that a stage left behind. rank: its place in the ranking that lost it, None where it had none."""

    candidate: Candidate
    stage: str
    reason: Reason
    rank: int | None
    message: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "key": chunk_key(self.candidate),
            "doc_id": self.candidate.doc_id,
            "chunk_index": self.candidate.chunk_index,
            "stage": self.stage,
            "reason": self.reason,
            "rank": self.rank,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class RankingRecord:
    """A retrieval with the lists that explain it, by name, read in its transaction.

    unfiltered: as they were without filters, {} without filters. disabled: the best disabled chunks, {} without any.
    other_scan: the vector list by the exact scan where the retrieval used the index, by the index where it scanned, and
    the time in ms; None without an index.
    """

    plan: RetrievePlan
    store: Store
    retrieval: Retrieval
    record: ListRecord
    statements: list[sql_statements.Statement]
    unfiltered: Mapping[str, Sequence[Candidate]]
    disabled: Mapping[str, Sequence[Candidate]]
    other_scan: tuple[Sequence[Candidate], float] | None

    def everything(self) -> Iterator[Candidate]:
        """Every candidate of any list."""
        for lists in (self.retrieval.lists, self.record.beyond, self.unfiltered, self.disabled):
            for candidates in lists.values():
                yield from candidates


def find_dropped(
    ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]], parts: Parts
) -> list[DroppedCandidate]:
    """In the order of the stages, within each by rank. A chunk may be lost by one list and kept by the other.

    documents: doc_id -> what a typed filter reads of it, and its state.
    """
    plan, retrieval = ranking.plan, ranking.retrieval
    return [
        *_filtered(ranking, documents),
        *_disabled(ranking, documents),
        *_below_pool(ranking),
        *_not_in_list(retrieval, parts),
        *_cut(plan, retrieval),
        *_uncompressed(plan, retrieval, parts.query),
    ]


def _filtered(ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]]) -> Iterator[DroppedCandidate]:
    plan = ranking.plan
    for name, candidates in ranking.unfiltered.items():
        for rank, candidate in enumerate(candidates[: max(plan.k, FILTERED_MIN)], 1):
            if why := why_filtered(candidate, plan.filters, documents.get(candidate.doc_id, {})):
                message = f"would be rank {rank} ({name}), but {why}"
                yield DroppedCandidate(candidate, name, "filtered", rank, message)


def _disabled(ranking: RankingRecord, documents: Mapping[str, Mapping[str, Any]]) -> Iterator[DroppedCandidate]:
    for name, candidates in ranking.disabled.items():
        order = [*ranking.retrieval.lists.get(name, ()), *ranking.record.beyond.get(name, ())]
        for candidate in candidates:
            rank = would_be_rank(candidate, order)
            if rank <= max(ranking.plan.k, FILTERED_MIN):
                document, why = documents.get(candidate.doc_id, {}), "the chunk is disabled"
                if document.get("state", "enabled") != "enabled":
                    why = f"its document is {document['state']}"
                yield DroppedCandidate(candidate, name, "disabled", rank, f"would be rank {rank} ({name}), but {why}")


def why_filtered(candidate: Candidate, filters: Filters, document: Mapping[str, Any]) -> str:
    """Which filter a chunk fails, "" when it passes all. document: what `conditions.matches` reads of it."""
    tags = set(candidate.tags)
    if filters.tags_any and not tags & set(filters.tags_any):
        return f"it has none of the tags {', '.join(filters.tags_any)}"
    if missing := [tag for tag in filters.tags_all if tag not in tags]:
        return f"it lacks the tag {', '.join(missing)}"
    for key, expected in filters.metadata.items():
        if key not in candidate.metadata:
            return f"its metadata has no {key}"
        if candidate.metadata[key] != expected or isinstance(candidate.metadata[key], bool) != isinstance(
            expected, bool
        ):
            return f"its {key} is {candidate.metadata[key]!r}, not {expected!r}"
    if filters.where and (failure := first_failure(filters.where, record_of(candidate, document))):
        return f"it does not satisfy {write_filter(failure)}"
    return ""


def record_of(candidate: Candidate, document: Mapping[str, Any]) -> dict[str, Any]:
    """A candidate as `conditions.matches` takes it."""
    own = {name: getattr(candidate, name) for name in ("doc_id", "tags", "metadata", "attributes")}
    return {**document, **own}


def _below_pool(ranking: RankingRecord) -> Iterator[DroppedCandidate]:
    pool, stored = ranking.plan.pool, {candidate.key for candidate in ranking.retrieval.fused}
    for name, candidates in ranking.record.beyond.items():
        for rank, candidate in enumerate(candidates, pool + 1):
            if candidate.key not in stored:
                message = f"rank {rank} ({name}); top N is {pool}"
                yield DroppedCandidate(candidate, name, "below_pool", rank, message)


def _not_in_list(retrieval: Retrieval, parts: Parts) -> Iterator[DroppedCandidate]:
    if len(retrieval.lists) < 2:
        return
    for name, candidates in retrieval.lists.items():
        if name == CODES or name in HOP_LISTS:  # most chunks hold no code, and no name of a hop
            continue
        keys = {candidate.key for candidate in candidates}
        last = candidates[-1].score if candidates else None
        for index, candidate in enumerate(retrieval.fused, 1):
            if candidate.key not in keys:
                explain = _not_by_meaning if name == "vector" else _not_by_words
                reason, message = explain(candidate, last, parts, exact=retrieval.exact is not False)
                yield DroppedCandidate(candidate, name, reason, index, message)


def _not_by_words(candidate: Candidate, last: float | None, parts: Parts, *, exact: bool) -> tuple[Reason, str]:
    shares = parts.shares_of(candidate)
    if not shares:
        return "not_in_list", "no query terms"
    total = sum(share.share for share in shares)
    return "not_in_list", f"BM25 {total:.4f}, below the last candidate ({last or 0:.4f})"


def _not_by_meaning(candidate: Candidate, last: float | None, parts: Parts, *, exact: bool) -> tuple[Reason, str]:
    cosine_parts = parts.cosine_of(candidate)
    if cosine_parts is None or last is None:
        return "not_in_list", "not among the vector candidates"
    if not exact and cosine_parts.cosine > last:
        message = f"cosine {cosine_parts.cosine:.4f}, above the last candidate ({last:.4f}): missed by the HNSW index"
        return "missed_by_index", message
    return "not_in_list", f"cosine {cosine_parts.cosine:.4f}, not above the last candidate ({last:.4f})"


def _cut(plan: RetrievePlan, retrieval: Retrieval) -> Iterator[DroppedCandidate]:
    before = {candidate.key: rank for rank, candidate in enumerate(retrieval.fused, 1)}
    for rank, candidate in enumerate(retrieval.reranked, 1):
        if rank <= plan.k:
            continue
        was = before[candidate.key]
        if plan.rerank and was <= plan.k:
            yield DroppedCandidate(
                candidate, "reranked", "cut_by_rerank", rank, f"rank {was} before the reranker, {rank} after it"
            )
        else:
            yield DroppedCandidate(candidate, "final", "cut_by_k", rank, f"rank {rank}; k is {plan.k}")


def _uncompressed(plan: RetrievePlan, retrieval: Retrieval, query: str) -> Iterator[DroppedCandidate]:
    """Results of which compress() kept nothing, or not all. Without its budget it shows what the budget alone cost."""
    if plan.compress is None:
        return
    stored, without_budget = _words_kept(retrieval.spans), _words_kept(
        compress(query, retrieval.candidates, CompressPolicy(kind=plan.compress, token_budget=None))
    )  # fmt: skip
    budget = plan.token_budget or CompressPolicy().token_budget
    for rank, candidate in enumerate(retrieval.candidates, 1):
        words, whole = stored.get(candidate.key, 0), len(candidate.content.split())
        if words == 0 and without_budget.get(candidate.key, 0):
            yield DroppedCandidate(candidate, "final", "over_budget", rank, f"does not fit into {budget} words")
        elif words == 0:
            yield DroppedCandidate(
                candidate,
                "final",
                "no_span",
                rank,
                "no sentence shares a term with the query, or a better result has it",
            )
        elif words < whole:
            yield DroppedCandidate(candidate, "final", "shortened", rank, f"{words} of {whole} words kept")


def _words_kept(spans: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    selected: dict[tuple[str, int], int] = {}
    for span in spans:
        key = (span["doc_id"], span["chunk_index"])
        selected[key] = selected.get(key, 0) + int(span["tokens_after"])
    return selected


BEYOND_POOL = 10  # how far below the pool of each list the explanation looks


def explain(
    collection: Collection,
    query: str,
    plan: RetrievePlan,
    *,
    analyze: bool = False,
    as_of: datetime | None = None,
    index_version: int | None = None,
) -> dict[str, Any]:
    """How the plan ranks the collection's chunks for the query, as JSON.

    columns: the stages that the plan has, in order ("vector", "lexical", "fused", "reranked", "final"), each {name,
    score_kind, size, rows}; a row is {key, doc_id, chunk_index, rank, score, from: the rank in each column before,
    None where it is not there; gain: ranks won against the column before, None where there is nothing to compare}.
    candidates: by key ("doc_id#chunk_index"), every chunk of any column and every lost one: its text and place, ranks,
    and arithmetic (see `retrieval_app.playground.score_arithmetic.row_arithmetic`), with highlights: [start, end,
    lexeme] in content and in context. words: what each word of the query counts. losses: see
    `DroppedCandidate`.
    links, where the plan has hops: by key, how a hop found a chunk: {hop, term, doc_id, chunk_index}.
    approximate: both vector lists where the collection has an HNSW index, else None. statements: the SQL that ran, each
    with its plan; analyze has the database run them again and measure. plans_hidden: documents may be kept from whoever
    asks, so that the statements stand there without plans.
    as_of: of the collection as it was then. index_version: by that one instead of the one that serves. Raises what
    `retrieve_detailed`, `read_as_of` and `read_version` raise.
    """
    recorder = RetrievalRecorder()
    read = partial(recorder, normalize(query).strip(), plan)
    with telemetry.silenced():
        if as_of is not None:
            read_as_of(collection, as_of, read)
        elif index_version is not None:
            read_version(collection, index_version, read)
        else:
            store = open_store(collection)
            with reading(sql_statements.alias_of(store.connection)):
                read(store)
    return recorder.explain(collection, analyze=analyze)


def hide_texts(explanation: dict[str, Any], collection: Collection) -> dict[str, Any]:
    """The texts of the candidates and their spans as the collection lets them be shown; every place stays right."""
    policy = policy_of(collection)
    if not policy.acts:
        return explanation
    candidates = explanation["candidates"]
    stored = {key: record["content"] for key, record in candidates.items()}
    for record in candidates.values():
        record |= {name: policy.show(record[name]) for name in ("title", "context", "content")}
    spans = []
    for span in explanation["spans"]:
        key, text = f"{span['doc_id']}#{span['chunk_index']}", span["content"]
        start = stored.get(key, "").find(text)  # a piece of what is hidden holds no half of a secret
        visible = candidates[key]["content"][start : start + len(text)] if start >= 0 else policy.show(text)
        spans.append({**span, "content": visible})
    shown = explanation | {"spans": spans}
    if "links" in explanation:
        shown["links"] = {key: link | {"term": policy.show(link["term"])} for key, link in explanation["links"].items()}
    return shown


class RetrievalRecorder:
    """A `retrieve_detailed` that records its lists, to be explained afterwards. Of several calls the last counts."""

    def __init__(self) -> None:
        self.ranking: RankingRecord | None = None

    def __call__(self, query: str, plan: RetrievePlan, store: Store) -> Retrieval:
        watched = copy.copy(store)
        watched.connection = connection = sql_statements.RecordingConnection(store.connection)
        retrieval = retrieve_detailed(query, plan, watched, beyond=BEYOND_POOL)
        statements = list(connection.statements)
        with telemetry.silenced():
            self.ranking = _record(with_rows(retrieval, store), plan, store, statements)
        return retrieval

    def explain(self, collection: Collection, *, analyze: bool = False) -> dict[str, Any]:
        """The explanation of the call, with texts as the collection lets them be shown. Needs a call before."""
        ranking = self.ranking
        if ranking is None:
            raise RuntimeError("nothing was retrieved yet: call the recorder first")
        with telemetry.silenced(), transaction.atomic(using=sql_statements.alias_of(ranking.store.connection)):
            return hide_texts(_Explanation(ranking).as_dict(analyze=analyze), collection)


def _record(
    retrieval: Retrieval, plan: RetrievePlan, store: Store, statements: list[sql_statements.Statement]
) -> RankingRecord:
    record = cast(ListRecord, retrieval.record)
    unfiltered: Mapping[str, Sequence[Candidate]] = {}
    if plan.filters:
        bare = replace(plan, filters=Filters())
        lists, _ = read_lists(replace(record, state=read_state(bare, store, record.text)), bare, store)
        unfiltered = add_codes(record.text, lists, bare)
    disabled = disabled_candidates(record.text, record.vector, plan, store, record.state)
    other_scan = None
    if record.state.vector_index and record.vector is not None:
        other = replace(plan, exact="never" if retrieval.exact else "always")
        state = read_state(other, store, record.text)
        began = time.perf_counter()
        listed, _ = vector_list(record.vector, other, store, state)
        other_scan = listed, round((time.perf_counter() - began) * 1000, 3)
    return RankingRecord(plan, store, retrieval, record, statements, unfiltered, disabled, other_scan)


class _Explanation:
    def __init__(self, ranking: RankingRecord) -> None:
        self.ranking, self.record = ranking, ranking.record
        self.plan, self.store, self.retrieval = ranking.plan, ranking.store, ranking.retrieval
        self.query, self.vector, self.state = self.record.text, self.record.vector, self.record.state

    def as_dict(self, *, analyze: bool) -> dict[str, Any]:
        losses = find_dropped(self.ranking, self._documents(), self.parts)
        candidates = self._describe_all([*self._last_forms(), *(loss.candidate for loss in losses)])
        retrieval = self.retrieval
        links = {f"{doc_id}#{index}": asdict(link) for (doc_id, index), link in retrieval.links.items()}
        return {
            "query": self.query,
            "collection": self.store.collection.name,
            "index_version": self.store.collection.index_version,
            "embed_model": self.store.collection.embed_model,
            "plan": self.plan.as_dict(),
            "plan_hash": self.plan.hash,
            "columns": columns_of(retrieval, self.plan),
            "candidates": candidates,
            "words": [word.as_dict() for word in self.words],
            "losses": [loss.as_dict() for loss in losses],
            **({"links": links} if self.plan.hops > 1 else {}),
            "spans": retrieval.spans,
            "tokens_before": retrieval.tokens_before,
            "tokens_after": retrieval.tokens_after,
            "short_result": retrieval.short_result.as_dict() if retrieval.short_result else None,
            "exact": retrieval.exact,
            "chunk_count": self.state.open_count,
            "approximate": self._approximate(),
            "timings_ms": retrieval.timings_ms,
            "query_tokens": retrieval.query_tokens,
            "statements": self._statements(analyze=analyze),
            "plans_hidden": not self.reads_all,
        }

    @property
    def reads_all(self) -> bool:
        """Whether no document of the collection is ever kept from whoever asks, whatever documents there are."""
        return current_access().may(Permission.ADMINISTER, self.store.collection.id)

    def _statements(self, *, analyze: bool) -> list[dict[str, Any]]:
        if not self.reads_all:
            return sql_statements.bare_statements(self.ranking.statements)
        return sql_statements.explain_statements(self.store.connection, self.ranking.statements, analyze=analyze)

    @cached_property
    def words(self) -> list[QueryWord]:
        return query_words(self.query, self.store, self.state) if self.plan.mode != "vector" else []

    def _documents(self) -> dict[str, dict[str, Any]]:
        """What a typed filter reads of the documents, and what keeps them out."""
        lists = (*self.ranking.unfiltered.values(), *self.ranking.disabled.values())
        read = ("doc_id", "title", "created_at", "updated_at", "language", "media_type", "state")
        rows = Document.objects.filter(
            collection_id=self.store.collection.id, doc_id__in={each.doc_id for listed in lists for each in listed}
        )
        return {str(row["doc_id"]): row for row in rows.values(*read)}

    @cached_property
    def parts(self) -> Parts:
        """What the scores are made of, for every chunk that the explanation names."""
        named = self.ranking.everything()
        ids = list(dict.fromkeys(item.chunk_id for item in named if item.chunk_id is not None))
        return Parts(
            query=self.query,
            shares=word_shares(self.words, ids, self.store),
            cosines=cosine_parts(self.vector, ids, self.store) if self.vector is not None else {},
            terms=fused_terms(self.retrieval, self.plan),
            forms=written_forms(self.words, ids, self.store),
            reranker_parts=ask_reranker(
                self.store.rerankers.get(self.plan.rerank or ""), self.query, self.retrieval.fused
            ),
        )

    def _last_forms(self) -> list[Candidate]:
        """Every candidate of the retrieval, in its last form."""
        known: dict[tuple[str, int], Candidate] = {}
        for column in (*self.retrieval.lists.values(), self.retrieval.fused, self.retrieval.reranked):
            known |= {candidate.key: candidate for candidate in column}
        return list(known.values())

    def _describe_all(self, named: Iterable[Candidate]) -> dict[str, dict[str, Any]]:
        described: dict[str, dict[str, Any]] = {}
        for candidate in named:
            if (key := chunk_key(candidate)) not in described:
                described[key] = self._describe(candidate)
        return described

    def _describe(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "doc_id": candidate.doc_id,
            "chunk_index": candidate.chunk_index,
            "title": title_of(candidate),
            "context": candidate.context,
            "content": candidate.content,
            "start": candidate.start,
            "end": candidate.end,
            "page": page_of(candidate.attributes),
            "tags": list(candidate.tags),
            "metadata": dict(candidate.metadata),
            "attributes": dict(candidate.attributes),
            "revision": candidate.revision,
            "unit_score": candidate.unit_score,
            "ranks": {
                name: {"rank": list_rank.rank, "score": list_rank.score} for name, list_rank in candidate.ranks.items()
            },
            "arithmetic": row_arithmetic(candidate, self.plan, self.parts),
            "highlights": {
                "content": [list(list_rank) for list_rank in find_words(candidate.content, self.parts.forms)],
                "context": [list(list_rank) for list_rank in find_words(candidate.context, self.parts.forms)],
            },
        }

    def _approximate(self) -> dict[str, Any] | None:
        """The vector list by the exact scan and through the HNSW index, and how much of the first the second found."""
        if self.ranking.other_scan is None:
            return None
        own = (self.retrieval.lists["vector"], self.retrieval.timings_ms["vector"])
        exact, indexed = (own, self.ranking.other_scan) if self.retrieval.exact else (self.ranking.other_scan, own)
        truth, result = ([chunk_key(item) for item in listed] for listed, _ in (exact, indexed))
        k = self.plan.k
        return {
            "pool": self.plan.pool,
            "exact": truth,
            "approximate": result,
            "overlap": overlap_at(truth, result, self.plan.pool).as_dict(),
            "recall_at_k": recall_of(result[:k], truth[:k]),
            "recall_at_pool": recall_of(result, truth),
            "missed": [{"key": key, "rank": rank} for rank, key in enumerate(truth, 1) if key not in set(result)],
            "exact_ms": exact[1],
            "approximate_ms": indexed[1],
        }


def columns_of(retrieval: Retrieval, plan: RetrievePlan) -> list[dict[str, Any]]:
    """The stages that the plan has, in the order in which they follow each other."""
    stages: list[tuple[str, Sequence[Candidate]]] = list(retrieval.lists.items())
    if len(retrieval.lists) > 1:
        stages.append(("fused", retrieval.fused))
    if plan.rerank:
        stages.append(("reranked", retrieval.reranked))
    stages.append(("final", retrieval.candidates))
    columns: list[dict[str, Any]] = []
    locations: dict[str, dict[str, int]] = {}
    for name, candidates in stages:
        sources = list(locations) if name == "fused" else list(locations)[-1:]
        if name == "lexical" or name in HOP_LISTS:
            sources = []
        rows = [_row(candidate, rank, {source: locations[source] for source in sources}, name)
                for rank, candidate in enumerate(candidates, 1)]  # fmt: skip
        kind = candidates[0].score_kind if candidates else ""
        columns.append({"name": name, "score_kind": kind, "size": len(rows), "rows": rows})
        locations[name] = {row["key"]: row["rank"] for row in rows}
    return columns


def _row(candidate: Candidate, rank: int, sources: Mapping[str, Mapping[str, int]], column: str) -> dict[str, Any]:
    key = chunk_key(candidate)
    before = {name: positions.get(key) for name, positions in sources.items()}
    previous = next(iter(before.values())) if len(before) == 1 else None
    list_rank = candidate.ranks.get(column)
    return {
        "key": key,
        "doc_id": candidate.doc_id,
        "chunk_index": candidate.chunk_index,
        "rank": rank,
        "score": list_rank.score if list_rank and column != "final" else candidate.score,
        "from": before,
        "gain": previous - rank if previous is not None else None,
    }


ROW_PX = 66  # the height of a row in static/css/playground.css
GAP_PX = 32  # the width of the space between two lists


@dataclass(frozen=True, slots=True)
class RankLine:
    """One line. number: the chunk's number on the page. tone: up, down or level. path: SVG, from left to right."""

    number: int
    tone: str
    path: str


def join_ranks(left: Sequence[str], right: Sequence[str], shown: int, numbers: Mapping[str, int]) -> list[RankLine]:
    """Lines between the first `shown` rows of two lists of keys; the ones with the larger moves lie on top.

    A chunk that is shown on one side only, and stands lower on the other, runs out at the lower edge.
    """
    positions = {key: index for index, key in enumerate(left)}
    lines = []
    for index, key in enumerate(right):
        if key in positions and min(index, positions[key]) < shown:
            lines.append((positions[key] - index, key, positions[key], index))
    lines.sort(key=lambda line: (abs(line[0]), line[3]))
    return [
        RankLine(numbers[key], "up" if gain > 0 else "down" if gain < 0 else "level", _path(before, after, shown))
        for gain, key, before, after in lines
    ]


def _path(before: int, after: int, shown: int) -> str:
    start, end = (
        min(position, shown) * ROW_PX + (ROW_PX // 2 if position < shown else 0) for position in (before, after)
    )
    half = GAP_PX // 2
    return f"M0 {start}C{half} {start} {half} {end} {GAP_PX} {end}"


def mark_pieces(text: str, positions: Sequence[Sequence[Any]]) -> list[tuple[str, str]]:
    """The text cut at [start, end, lexeme] places: (piece, lexeme or ""), in order; joined, the pieces are the text."""
    pieces, position = [], 0
    for start, end, lexeme in positions:
        if start > position:
            pieces.append((text[position:start], ""))
        pieces.append((text[start:end], lexeme))
        position = end
    if position < len(text):
        pieces.append((text[position:], ""))
    return pieces
