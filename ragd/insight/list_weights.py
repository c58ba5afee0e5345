"""Measure what the lists of a hybrid search are worth in one collection, and derive their weights, without any label.

A probe asks for a chunk by one of its sentences, among the other probes' chunks, in two ways. "apart": the sentence is
taken out of the chunk, so that the query shares no more words with it than the topic brings: the inverse cloze task of
Lee, Chang, Toutanova, "Latent Retrieval for Weakly Supervised Open Domain Question Answering", ACL 2019. "shared": the
query has half of the sentence's words and the chunk keeps half, so that they share a quarter. Questions lie between the
two: "apart" alone underrates the words, "shared" alone the vectors.

Sentences of a text are more alike in their words than a question is to its answer, so a list that does worse in the
probes may still help questions. Both lists therefore count the same unless the weaker one is shown to fail: see
`choose_weights`.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ragd.models import minilm
from ragd.normalization import normalize
from ragd.search.lexical_search import lexical_candidates
from ragd.search.vector_search import read_state, vector_candidates
from ragd.store.indexing import embed_chunks, index
from ragd.store.store import Store
from ragd.store.tables import create_collection, scratch_schema
from ragd.text.sentences import split_sentences
from ragd.types import LISTS, RRF_K, Candidate, Chunk, Embedder, RetrievePlan, Vector, order_key

CHUNKS = 120  # that probes are made of, two of each
CHUNKS_MIN = 30  # fewer tell nothing
SENTENCE_CHARS_MIN = 12
WORDS_MIN = 4  # of a sentence; one with fewer, as in text without spaces, is taken apart by PIECE_CHARS
PIECE_CHARS = 2
DEPTH = 10
KINDS = {"apart": 2, "shared": 1}  # and how much each counts
EVEN = {"vector": 1.0, "lexical": 1.0}
USELESS = 1 / 3
SURE = 2.0  # standard errors
FULL, NOTHING = 0.85, 0.6  # of the share of the lexical list's worth, where nothing tells which languages a model knows
DIGITS = 2
PLAN = RetrievePlan(exact="always")
WHITE_SPACE = re.compile(r"\s+")

Rankings = Sequence[tuple[Mapping[str, Sequence[Candidate]], tuple[str, int]]]  # the lists of a probe, its chunk's key


@dataclass(frozen=True, slots=True)
class Probe:
    """A query, and what is left of the chunk that it was taken from. kind: one of KINDS."""

    kind: str
    query: str
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ListWeights:
    """What was measured. weights: list name -> weight. alone: nDCG@10 of each list over all probes. even, fused: of
    both lists together at equal weights and at `weights`. probes: how many there were.
    """

    weights: Mapping[str, float]
    alone: Mapping[str, float]
    even: float
    fused: float
    probes: int
    reads: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_probes(chunks: Sequence[Chunk]) -> list[Probe]:
    """A probe of each kind per chunk, bound to documents of their own; a chunk too short to be parted makes none.

    Which sentence and words are taken depends on the chunk's text alone. A chunk of one sentence is parted near its
    middle for "apart".
    """
    probes: list[Probe] = []
    for chunk in chunks:
        parted = {"apart": _take_apart(chunk.content), "shared": _share_words(chunk.content)}
        if all(query.strip() and rest.strip() for query, rest in parted.values()):
            for kind, (query, rest) in parted.items():
                own = replace(chunk, doc_id=f"{len(probes):06}", chunk_index=0, content=rest, start=0, end=len(rest))
                probes.append(Probe(kind, query.strip(), replace(own, embedding=None, enabled=True)))
    return probes


def _sentences(text: str) -> list[tuple[int, int]]:
    return [(start, end) for start, end in split_sentences(text) if end - start >= SENTENCE_CHARS_MIN]


def _take_apart(text: str) -> tuple[str, str]:
    if len(sentences := _sentences(text)) >= 2:
        start, end = sentences[_draw(text) % len(sentences)]
        return text[start:end], text[:start] + text[end:]
    middle = len(text) // 2
    cut = min((match.start() for match in WHITE_SPACE.finditer(text)), key=lambda at: abs(at - middle), default=middle)
    return text[:cut], text[cut:]


def _share_words(text: str) -> tuple[str, str]:
    sentences = _sentences(text) or [(0, len(text))]
    start, end = sentences[_draw(text) % len(sentences)]
    words, joint = text[start:end].split(), " "
    if len(words) < WORDS_MIN:
        words, joint = [text[at : min(at + PIECE_CHARS, end)] for at in range(start, end, PIECE_CHARS)], ""
    asked, kept = (
        joint.join(word for place, word in enumerate(words) if _draw(text, f"{part} {place}") % 2) for part in "qc"
    )
    return asked, text[:start] + kept + text[end:]


def _draw(text: str, name: str = "") -> int:
    """A number that depends on the text and the name alone."""
    return int.from_bytes(hashlib.sha256(f"{name}|{text}".encode("utf-8", "replace")).digest()[:8])


def embed_probes(probes: Sequence[Probe], embedder: Embedder) -> tuple[list[Chunk], list[Vector]]:
    """The probes' chunks with vectors, and the vectors of their queries; outside of a transaction, for it takes long.

    Raises what the embedder raises.
    """
    chunks = embed_chunks([probe.chunk for probe in probes], embedder)
    return list(chunks), [embedder.embed_query(probe.query) for probe in probes]


def measure_list_weights(
    probes: Sequence[Probe], chunks: Sequence[Chunk], questions: Sequence[Vector], store: Store
) -> ListWeights | None:
    """The weights by these probes, ranked as the store's collection ranks; None for fewer than of CHUNKS_MIN chunks.

    chunks, questions: of `embed_probes`. The same probes and vectors give the same weights. Must run inside a
    transaction: the probes are indexed in a schema that is rolled back.
    """
    if len(probes) < CHUNKS_MIN * len(KINDS):
        return None
    rankings: dict[str, list[tuple[Mapping[str, Sequence[Candidate]], tuple[str, int]]]] = {}
    for kind in KINDS:
        of_kind = [row for row in zip(probes, chunks, questions, strict=True) if row[0].kind == kind]
        with scratch_schema(store.connection):
            scratch = _open_scratch(store)
            index([chunk for _, chunk, _ in of_kind], scratch)
            state = read_state(PLAN, scratch)
            rankings[kind] = [
                (
                    {
                        "vector": vector_candidates(vector, PLAN, scratch, True),
                        "lexical": lexical_candidates(normalize(probe.query), PLAN, scratch, state),
                    },
                    (chunk.doc_id, 0),
                )
                for probe, chunk, vector in of_kind
            ]
    return choose_weights(rankings, reads=_reads(probes, store.collection.embed_model))


def _reads(probes: Sequence[Probe], model: str) -> bool | None:
    """Whether the embedding model of this name knows the language of most probes; None for one without a tokenizer."""
    if model != minilm.MODEL:
        return None
    readable = minilm.open_model().find_readable("", [probe.chunk.content for probe in probes])
    return 2 * sum(readable) > len(readable)


def _open_scratch(store: Store) -> Store:
    collection = store.collection
    pk = create_collection(
        store.connection,
        name="probes",
        embed_model=collection.embed_model,
        embed_dims=collection.embed_dims,
        language=collection.language,
        placement="local",
    )
    return Store(store.connection, pk)


def choose_weights(rankings: Mapping[str, Rankings], *, reads: bool | None = None) -> ListWeights:
    """1 for each list, and less for one that is shown to fail.

    rankings: of each kind, as many in each and in the same order. A list is worth its mean nDCG@10, kinds weighted by
    KINDS. A list that is worth less than a share of USELESS of the other one counts 0. The vector list counts 0 too
    where its model does not know the language (reads is False) and it is worth less than the lexical one. Where nothing
    tells which languages the model knows (None), and the vector list is worth less by SURE standard errors of the
    paired difference, it counts 1 from a share of FULL on, 0 up to NOTHING, and between them in proportion.
    Raises ValueError for no rankings.
    """
    if not rankings or not all(rankings.values()):
        raise ValueError("no rankings: nothing can be chosen")
    everything = [row for asked in rankings.values() for row in asked]
    gains = {name: [_gain(_rank(lists[name], key)) for lists, key in everything] for name in LISTS}
    worth = {name: _worth(rankings, name) for name in LISTS}
    means = {name: statistics.fmean(row) for name, row in worth.items()}
    weights = dict(EVEN)
    weaker, stronger = sorted(LISTS, key=lambda name: means[name])
    if means[weaker] < USELESS * means[stronger] or (reads is False and means["vector"] < means["lexical"]):
        weights[weaker] = 0.0
    elif weaker == "vector" and reads is None:
        difference = means[stronger] - means[weaker]
        share = (means[weaker] / means[stronger] - NOTHING) / (FULL - NOTHING)
        if difference > SURE * _error(worth[stronger], worth[weaker]):
            weights[weaker] = round(min(1.0, max(0.0, share)), DIGITS)
    even, fused = (
        statistics.fmean(_gain(_fused_rank(lists, pair, key)) for lists, key in everything) for pair in (EVEN, weights)
    )
    alone = {name: statistics.fmean(row) for name, row in gains.items()}
    return ListWeights(weights, alone, even, fused, len(everything), reads)


def _worth(rankings: Mapping[str, Rankings], name: str) -> list[float]:
    """Of each chunk that probes were made of, what the list reaches for them."""
    share = sum(KINDS[kind] for kind in rankings)
    of_kinds = (
        [KINDS[kind] / share * _gain(_rank(lists[name], key)) for lists, key in asked]
        for kind, asked in rankings.items()
    )
    return [math.fsum(row) for row in zip(*of_kinds, strict=True)]


def _rank(ranked: Sequence[Candidate], key: tuple[str, int]) -> int | None:
    return next((rank for rank, candidate in enumerate(ranked, 1) if candidate.key == key), None)


def _fused_rank(
    lists: Mapping[str, Sequence[Candidate]], weights: Mapping[str, float], key: tuple[str, int]
) -> int | None:
    """The place that `ragd.search.fusion.fuse` gives the key, without its records; None where no list holds it."""
    sums: dict[tuple[str, int], float] = {}
    for name, ranked in lists.items():
        for rank, candidate in enumerate(ranked, 1):
            sums[candidate.key] = sums.get(candidate.key, 0.0) + weights[name] / (RRF_K + rank)
    if key not in sums:
        return None
    own = order_key(sums[key], *key)
    return sum(order_key(score, *other) <= own for other, score in sums.items())


def _gain(rank: int | None) -> float:
    """nDCG@10 where one chunk is wanted."""
    return 1 / math.log2(rank + 1) if rank is not None and rank <= DEPTH else 0.0


def _error(one: Sequence[float], other: Sequence[float]) -> float:
    """The standard error of the mean paired difference."""
    differences = [high - low for high, low in zip(one, other, strict=True)]
    return statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
