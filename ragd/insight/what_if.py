"""Retrieval as it would be if some chunks were hidden, gone or others: what is asked before anybody changes them.

    supposed = Supposed(gone_documents=("old",), added=chunks_with_vectors)
    with_change = WhatIf(store, supposed)
    now, then = with_change.compare("how long are keys valid?", plan, vector)

Nothing that others see is written: what leaves is left out of each list, and what comes is scored in a table of the
session's own. Both lists, the counts of words and the mean length are those that the change would leave behind, so the
result is that of retrieve() after it, as long as the vector list is exact. Searches and writers go on meanwhile.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd import telemetry
from ragd.errors import InvalidInput
from ragd.models.reranking import rerank
from ragd.normalization import has_visible, normalize
from ragd.search.candidates import COLUMNS, narrows, passing, ranked, scope
from ragd.search.hops import add_codes
from ragd.search.lexical_search import COUNTS, LEXICAL, LexicalQuery, read_query, scanned_rows
from ragd.search.pruned_search import pruned_rows
from ragd.search.retrieval import ListRecord, check_mode, find_reranker, fuse_lists, read_lists
from ragd.search.vector_search import (
    VECTOR_EXACT,
    VECTOR_FILTERED,
    VECTOR_INDEXED,
    is_exact,
    passes_few,
    read_state,
    vector_candidates,
    vector_parameter,
)
from ragd.store.analysis import EVERYBODY
from ragd.store.chunk_writer import READ_LISTS, Change, copy_rows, count_words, parse_words
from ragd.store.indexing import changed_chunks, read_existing, with_vectors
from ragd.store.postings import POSTINGS_MIN
from ragd.store.store import REBAKE_LIMIT, Store, StoreState, bake_length, execute, fetch_all
from ragd.types import POOL_MAX, Candidate, Chunk, ListRank, RetrievePlan, Vector, sort_key

PREPARED_BYTES_MAX = 256_000_000
PREPARED_MIN = 8  # questions; for fewer a scan each is quicker than reading all vectors
VECTORS = "SELECT id, vector_send(embedding) FROM {chunks} WHERE {passing} AND embedding IS NOT NULL"
HEADER_BYTES = 4  # the number of dimensions and two unused bytes
SLACK = 1e-4  # more than float32 sums of some thousand products differ by order
ROWS_AT_ONCE = 4096
HAS_DISABLED = "SELECT EXISTS (SELECT 1 FROM {chunks} WHERE NOT enabled)"
SCRATCH = 0  # no index version has this number, so its table's name is free in the session's own schema

Matrix = npt.NDArray[np.float32]

MAKE_SCRATCH = """
CREATE TEMP TABLE {scratch} (LIKE {chunks} INCLUDING DEFAULTS) ON COMMIT DROP
"""
GIVE_IDS = "ALTER TABLE pg_temp.{scratch} ALTER id SET DEFAULT 0"
DROP_SCRATCH = "DROP TABLE IF EXISTS pg_temp.{scratch}"

LEFT_OUT = """doc_id <> ALL(%(left_documents)s::text[])
  AND (doc_id <> ALL(%(left_of)s::text[]) OR (doc_id || '#' || chunk_index) <> ALL(%(left_chunks)s::text[]))"""

GONE_WORDS = """
SELECT counted.term, count(*), sum(counted.places)
FROM {chunks}, ragd_counted(fts, access) AS counted
WHERE doc_id = ANY(%(left_documents)s::text[])
   OR (doc_id = ANY(%(left_of)s::text[]) AND (doc_id || '#' || chunk_index) = ANY(%(left_chunks)s::text[]))
GROUP BY counted.term
"""

GONE_ROWS = """
SELECT count(*), count(*) FILTER (WHERE 1 = ANY (access)) FROM {chunks}
WHERE doc_id = ANY(%(left_documents)s::text[])
   OR (doc_id = ANY(%(left_of)s::text[]) AND (doc_id || '#' || chunk_index) = ANY(%(left_chunks)s::text[]))
"""

# By another mean length than the stored weights were computed with.
REWEIGHED = f"""
SELECT {COLUMNS}, -distance AS score
FROM (SELECT *, ragd_bm25(fts, %(length)s) <#> %(weights)s::sparsevec AS distance
      FROM {{chunks}} WHERE {{passing}} AND fts @@ %(words)s::tsquery) AS weighted
WHERE distance < 0
ORDER BY distance, doc_id, chunk_index
LIMIT %(pool)s
"""  # noqa: S608  (constants of the library)

STORED_VECTOR = "SELECT embedding::text FROM {chunks} WHERE doc_id = %(doc_id)s AND chunk_index = %(number)s"

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Supposed:
    """A change that nobody has made. Hidden chunks stay counted and are not found; gone ones are neither.

    Documents stand for all their chunks. added: with vectors; one that is disabled is counted and not found. A chunk
    that is replaced is gone and added. Nothing at all: everything stays as it is.
    """

    hidden_documents: tuple[str, ...] = ()
    gone_documents: tuple[str, ...] = ()
    hidden: tuple[Key, ...] = ()
    gone: tuple[Key, ...] = ()
    added: tuple[Chunk, ...] = ()

    @property
    def documents(self) -> tuple[str, ...]:
        """The ids of all documents that it touches, sorted."""
        whole = {*self.hidden_documents, *self.gone_documents}
        return tuple(sorted(whole | {key[0] for key in (*self.hidden, *self.gone)} | {c.doc_id for c in self.added}))


def suppose_chunks(chunks: Sequence[Chunk], store: Store) -> Supposed:
    """That these are all the chunks of their documents from now on, which index() would make of them.

    What is stored equal stays; what is new is embedded by the store's embedder where it has no vector. A document of
    which no chunk is given is not touched.
    """
    existing = read_existing((chunk.doc_id for chunk in chunks), store)
    ready, _ = with_vectors(changed_chunks(chunks, existing), existing, store)
    sizes = Counter(chunk.doc_id for chunk in chunks)
    gone = [key for key in existing if key[1] >= sizes[key[0]]]
    hidden, added = [], []
    for chunk in ready:
        key = (chunk.doc_id, chunk.chunk_index)
        if chunk.embedding is None and not chunk.enabled:
            hidden.append(key)
            continue
        if key in existing:
            gone.append(key)
        added.append(chunk if chunk.embedding is not None else replace(chunk, embedding=_stored_vector(chunk, store)))
    return Supposed(hidden=tuple(sorted(hidden)), gone=tuple(sorted(gone)), added=tuple(added))


def _stored_vector(chunk: Chunk, store: Store) -> list[float]:
    values = {"doc_id": chunk.doc_id, "number": chunk.chunk_index}
    ((vector,),) = fetch_all(store.connection, STORED_VECTOR.format(chunks=store.collection.partition), values)
    return [float(number) for number in vector.strip("[]").split(",")]


class WhatIf:
    """One supposed change over one store. In the caller's transaction, at whose end nothing is left of it.

    Raises InvalidInput for an added chunk without a vector, and what the store raises.
    """

    def __init__(self, store: Store, supposed: Supposed) -> None:
        if missing := next((chunk for chunk in supposed.added if chunk.embedding is None), None):
            raise InvalidInput(
                f"chunk {missing.chunk_index} of {missing.doc_id!r} has no vector; embed the chunks first",
                field="embedding",
            )
        self.store, self.supposed = store, supposed
        self.whole = frozenset((*supposed.hidden_documents, *supposed.gone_documents))
        self.single = frozenset((*supposed.hidden, *supposed.gone))
        self.left = _left(sorted(self.whole), sorted(self.single))
        self.state = store.state()
        self.moved, self.counted = self._count()
        self.scratch = self._fill() if supposed.added else None
        self.near: NearRows | None = None

    def _count(self) -> tuple[dict[int, int], StoreState]:
        """What the change does to the words' counts, and the state that it leaves."""
        change, supposed, store = Change(), self.supposed, self.store
        gone = _left(supposed.gone_documents, supposed.gone)
        chunks = store.collection.partition
        if supposed.gone_documents or supposed.gone:
            ((rows, open_rows),) = fetch_all(store.connection, GONE_ROWS.format(chunks=chunks), gone)
            words = fetch_all(store.connection, GONE_WORDS.format(chunks=chunks), gone)
            terms, counts, lengths = ([int(row[index]) for row in words] for index in range(3))
            change.add(
                -int(rows), -int(open_rows), -sum(lengths), np.array(terms, np.int64), -np.array(counts, np.int64)
            )
        if supposed.added:
            parsed = parse_words(supposed.added, store) if store.collection.hybrid_enabled else None
            access = self._access()
            count_words(parsed, [access.get(chunk.doc_id, EVERYBODY) for chunk in supposed.added], change)
        terms_moved, by = change.per_term()
        moved = dict(zip(terms_moved.tolist(), by.tolist(), strict=True))
        count, total = self.state.open_count + change.open_rows, self.state.length_total + change.length
        baked = self.state.length_baked
        if (supposed.gone_documents or supposed.gone or supposed.added) and self.state.open_count <= REBAKE_LIMIT:
            baked = bake_length(total / count) if count else 1.0
        rows = self.state.chunk_count + change.rows
        return moved, replace(self.state, chunk_count=rows, open_count=count, length_total=total, length_baked=baked)

    def _access(self) -> dict[str, Sequence[int]]:
        """Who may read the documents that chunks are added to, where some may not."""
        names = sorted({chunk.doc_id for chunk in self.supposed.added})
        return dict(fetch_all(self.store.connection, READ_LISTS, self.store.scope | {"doc_ids": names}))

    def _fill(self) -> Store:
        """A store of the chunks that come, in a table of this session."""
        store = self.store
        scratch = copy.copy(store)
        scratch.collection = replace(store.collection, index_version=SCRATCH, placement="local")
        names = {"scratch": scratch.collection.partition, "chunks": store.collection.partition}
        for statement in (DROP_SCRATCH, MAKE_SCRATCH, GIVE_IDS):
            execute(store.connection, statement.format(**names))
        added = self.supposed.added
        words = parse_words(added, store) if store.collection.hybrid_enabled else None
        documents = {chunk.doc_id: (0, True, 0, EVERYBODY) for chunk in added}
        copy_rows(added, scratch, documents, words, self.counted.length_baked)
        return scratch

    def prepare(self, vectors: Mapping[str, Sequence[float]], plan: RetrievePlan) -> None:
        """Read the vectors once for all these questions (text -> vector), instead of once for each, where `compare`
        would scan them. Nothing for a lexical plan, for a few questions, where the index answers, and where all vectors
        with their scores take more than PREPARED_BYTES_MAX."""
        self.near = None
        if plan.mode == "lexical" or len(vectors) < PREPARED_MIN or narrows(plan, self.store):
            return
        numbers = self.state.chunk_count * (len(next(iter(vectors.values()))) + len(vectors))
        if 4 * numbers > PREPARED_BYTES_MAX:
            return
        if is_exact(plan, self.store, self.state):
            self.near = NearRows(vectors, plan, self.store, _wider(plan))

    def compare(
        self, query: str, plan: RetrievePlan, vector: Sequence[float] | None
    ) -> tuple[list[Candidate], list[Candidate]]:
        """The plan's best k for the query now, and as they would be: as retrieve() gives them.

        vector: of the query, by the store's embedder; None only where the mode is lexical. Raises as retrieve().
        """
        text = normalize(query).strip()
        if not has_visible(text):
            raise InvalidInput("query must hold at least one visible character; it is empty", field="query")
        check_mode(plan, self.store)
        if plan.mode == "lexical":
            vector = None
        elif vector is None:
            raise InvalidInput(f"mode {plan.mode!r} needs the vector of the query", field="vector")
        with telemetry.silenced():
            state = read_state(plan, self.store, text)
            near = self._near_list(query, vector, plan)
            record = ListRecord(text, None if near else vector, state)
            wide, exact = read_lists(record, plan, self.store, beyond=_wider(plan) - plan.pool)
            if near:
                wide, exact = {"vector": near} | wide, True
            now = {name: each[: plan.pool] for name, each in wide.items()}
            then: dict[str, Sequence[Candidate]] = {}
            if vector is not None:
                then["vector"] = self._vector_list(wide["vector"], vector, plan, bool(exact))
            if "lexical" in wide:
                then["lexical"] = self._lexical_list(wide["lexical"], text, plan)
            before = self._best(text, now, plan)
            return before, before if then == now else self._best(text, then, plan)

    def _near_list(self, query: str, vector: Vector | None, plan: RetrievePlan) -> Sequence[Candidate] | None:
        """The vector list from what `prepare` read, None where that does not hold it."""
        if vector is None or self.near is None or query not in self.near or self.near.plan != plan:
            return None
        rows = self.near.fetch(query, vector)
        return ranked(rows, "vector", "cosine", 1.0) if self.near.is_whole(query, len(rows)) else None

    def _staying(self, wide: Sequence[Candidate], plan: RetrievePlan, name: str) -> Sequence[Candidate] | None:
        """The pool of a list without what leaves; None where more than `wide` is needed to fill it."""
        if not any(map(self._leaves, wide[: plan.pool])):
            return wide[: plan.pool]
        staying = [each for each in wide if not self._leaves(each)]
        whole = len(staying) >= plan.pool or len(wide) < _wider(plan)
        return _merge(staying, [], plan, name) if whole else None

    def _vector_list(
        self, wide: Sequence[Candidate], vector: Sequence[float], plan: RetrievePlan, exact: bool
    ) -> Sequence[Candidate]:
        stored = None
        if exact or not passes_few(plan, self.store) or not any(map(self._leaves, wide)):
            stored = self._staying(wide, plan, "vector")
        if stored is None:
            stored = self._stored_without(vector, plan, exact)
        if self.scratch is None:
            return stored
        return _merge(stored, vector_candidates(vector, plan, self.scratch, True, rows=plan.pool), plan, "vector")

    def _stored_without(self, vector: Sequence[float], plan: RetrievePlan, exact: bool) -> list[Candidate]:
        """The pool of a search that leaves out what leaves."""
        through_index = VECTOR_FILTERED if passes_few(plan, self.store) else VECTOR_INDEXED
        sql = (VECTOR_EXACT if exact else through_index).format(
            chunks=self.store.collection.partition,
            cast=self.store.collection.vector_cast,
            passing=self._passing(plan),
            rows=plan.pool,
        )
        params = scope(plan, self.store) | self.left | {"vector": vector_parameter(vector, self.store)}
        return ranked(fetch_all(self.store.connection, sql, params), "vector", "cosine", 1.0)

    def _lexical_list(self, wide: Sequence[Candidate], text: str, plan: RetrievePlan) -> Sequence[Candidate]:
        same_counts = self.counted == self.state and not self.moved
        stored = self._staying(wide, plan, "lexical") if same_counts else None
        if stored is not None and self.scratch is None:
            return stored
        query = read_query(text, self.store, self.counted, self.moved)
        if not query.lexemes:
            return []
        if stored is None:
            stored = ranked(self._kept_rows(query, plan), "lexical", "bm25", query.highest)
        if self.scratch is None:
            return stored
        come = ranked(scanned_rows(query, plan, self.scratch), "lexical", "bm25", query.highest)
        return _merge(stored, come, plan, "lexical")

    def _kept_rows(self, query: LexicalQuery, plan: RetrievePlan) -> list[tuple[Any, ...]]:
        same_weights = self.counted.length_baked == self.state.length_baked
        if same_weights and self.state.chunk_count >= POSTINGS_MIN:
            rows = self._pruned(query, plan)
            if rows is not None:
                return rows
        kept = f"{self._passing(plan)} AND {COUNTS}" if same_weights else self._passing(plan)
        sql = (LEXICAL if same_weights else REWEIGHED).format(chunks=self.store.collection.partition, passing=kept)
        values = {"weights": query.vector, "words": query.words, "length": self.counted.length_baked}
        return fetch_all(self.store.connection, sql, scope(plan, self.store) | self.left | values)

    def _pruned(self, query: LexicalQuery, plan: RetrievePlan) -> list[tuple[Any, ...]] | None:
        """Of a large collection: the pool and as many rows again, without what leaves; None when that is too few."""
        wider = replace(plan, candidate_pool=_wider(plan))
        rows = pruned_rows(query.weights, query.chunks, query.vector, wider, self.store)
        if rows is None:
            return None
        result = ranked(rows, "lexical", "bm25", query.highest)
        selected = [row for row, each in zip(rows, result, strict=True) if not self._leaves(each)]
        return selected[: plan.pool] if len(selected) >= plan.pool or len(rows) < wider.pool else None

    def _leaves(self, candidate: Candidate) -> bool:
        """Whether what is found now would not be found any more, as it is."""
        return candidate.doc_id in self.whole or candidate.key in self.single

    def _passing(self, plan: RetrievePlan) -> str:
        return f"{passing(plan, self.store)} AND {LEFT_OUT}"

    def _best(self, text: str, lists: dict[str, Sequence[Candidate]], plan: RetrievePlan) -> list[Candidate]:
        fused = fuse_lists(add_codes(text, lists, plan), plan)
        reranker = find_reranker(plan, self.store)
        if reranker is not None:
            fused = rerank(text, fused, reranker)
        return list(fused[: plan.k])


def _wider(plan: RetrievePlan) -> int:
    return min(POOL_MAX, 2 * plan.pool)


def _left(documents: Sequence[str], chunks: Sequence[Key]) -> dict[str, list[str]]:
    """The parameters of the statements that leave some chunks out."""
    return {
        "left_documents": list(documents),
        "left_of": sorted({doc_id for doc_id, _ in chunks}),
        "left_chunks": [f"{doc_id}#{number}" for doc_id, number in chunks],
    }


def _merge(
    candidates: Sequence[Candidate], come: Sequence[Candidate], plan: RetrievePlan, name: str
) -> list[Candidate]:
    best = sorted([*candidates, *come], key=sort_key)[: plan.pool]
    return [replace(each, ranks={name: ListRank(rank, each.score)}) for rank, each in enumerate(best, 1)]


class NearRows:
    """Per question the rows that an exact scan would rank first: at least `rows` of them, where there are so many.

    They are found in one pass over the vectors instead of a scan for each question. The pass names a little more rows
    than are wanted; the database then ranks these alone, so that scores, order and ties are those of its own scan.
    """

    def __init__(self, vectors: Mapping[str, Sequence[float]], plan: RetrievePlan, store: Store, rows: int) -> None:
        self.plan, self.store, self.rows = plan, store, rows
        self.ids: dict[str, list[int]] = {}
        questions = _normalized(np.asarray(list(vectors.values()), dtype=np.float32))
        ids, scores = self._read(questions)
        for column, text in enumerate(vectors):
            own = scores[:, column]
            least = np.partition(own, len(own) - rows)[len(own) - rows] - SLACK if len(own) > rows else -np.inf
            self.ids[text] = ids[own >= least].tolist()

    def __contains__(self, text: object) -> bool:
        return text in self.ids

    def fetch(self, text: str, vector: Sequence[float]) -> list[tuple[Any, ...]]:
        """The first `rows` rows of an exact scan for the question, as VECTOR_EXACT gives them; fewer where there are
        fewer, or where some went since the pass."""
        condition = f"{passing(self.plan, self.store)} AND id = ANY(%(near)s::bigint[])"
        chunks = self.store.collection.partition
        sql = VECTOR_EXACT.format(chunks=chunks, passing=condition, rows=self.rows)
        params = scope(self.plan, self.store) | {"vector": vector_parameter(vector, self.store), "near": self.ids[text]}
        return fetch_all(self.store.connection, sql, params)

    def is_whole(self, text: str, fetched: int) -> bool:
        """Whether so many rows are all that were named, up to `rows`."""
        return fetched == min(self.rows, len(self.ids[text]))

    def _read(self, questions: Matrix) -> tuple[npt.NDArray[np.int64], Matrix]:
        """The ids of all rows, and the cosine of each with each question."""
        sql = VECTORS.format(chunks=self.store.collection.partition, passing=passing(self.plan, self.store))
        rows = fetch_all(self.store.connection, sql, scope(self.plan, self.store))
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        scores = np.empty((len(rows), len(questions)), dtype=np.float32)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            part = b"".join(bytes(row[1])[HEADER_BYTES:] for row in rows[first : first + ROWS_AT_ONCE])
            stored = np.frombuffer(part, dtype=">f4").reshape(-1, questions.shape[1]).astype(np.float32)
            scores[first : first + len(stored)] = _normalized(stored) @ questions.T
        return ids, scores


def _normalized(rows: Matrix) -> Matrix:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Matrix = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    return result


def disabled_candidates(
    text: str, vector: Vector | None, plan: RetrievePlan, store: Store, state: StoreState
) -> dict[str, Sequence[Candidate]]:
    """List name -> the best disabled chunks that pass the plan's filters, at most its pool, best first.

    text: the normalized query; vector: its vector, None leaves the vector list out. {} when no chunk is disabled. The
    statistics count disabled chunks too, so scores compare with those of the lists. Every disabled chunk is scored.
    """
    ((found,),) = fetch_all(store.connection, HAS_DISABLED.format(chunks=store.collection.partition), {})
    if not found:
        return {}
    lists: dict[str, Sequence[Candidate]] = {}
    if plan.mode != "lexical" and vector is not None:
        lists["vector"] = vector_candidates(vector, plan, store, True, enabled=False)
    if plan.mode != "vector":
        query = read_query(text, store, state)
        rows = scanned_rows(query, plan, store, enabled=False) if query.lexemes else []
        lists["lexical"] = ranked(rows, "lexical", "bm25", query.highest or 1.0)
    return lists


def would_be_rank(candidate: Candidate, ranking: Sequence[Candidate]) -> int:
    """The place, from 1, that the candidate would take in a list that is in order; behind all of it at worst."""
    key = sort_key(candidate)
    return 1 + sum(1 for other in ranking if sort_key(other) < key)
