"""What the lists of a hybrid search are worth in one collection, and the weights that follow, without any label.

A probe takes one sentence out of a chunk and asks for the chunk by it, among the other probes' chunks: the inverse
cloze task of Lee, Chang, Toutanova, "Latent Retrieval for Weakly Supervised Open Domain Question Answering", ACL 2019.
The sentence is not in the text that is looked for, so the words have no more of an advantage than in a question.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragd.models.embedding import Embedder
from ragd.normalization import normalize
from ragd.search.lexical_search import lexical_candidates
from ragd.search.vector_search import read_state, vector_candidates
from ragd.store.indexing import embed_chunks, index
from ragd.store.schema import scratch_schema
from ragd.store.store import Store
from ragd.store.tables import create_collection
from ragd.text.sentences import split_sentences
from ragd.types import LISTS, RRF_K, Candidate, Chunk, RetrievePlan, Vector, order_key

PROBES = 200
PROBES_MIN = 30  # fewer tell nothing
SENTENCE_CHARS_MIN = 12
DEPTH = 10
EVEN = {"vector": 1.0, "lexical": 1.0}
SHARES = (0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.02, 0.0)  # of the weaker list, beside 1 of the other
PAIRS = (
    EVEN,
    *({"vector": 1.0, "lexical": 1.0} | {name: share} for share in SHARES for name in LISTS),
)  # most even first
NEAR, LOSS_MAX = 0.5, 0.02
WHITE_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Probe:
    """A question and the chunk that it was taken from, without it."""

    query: str
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class ListWeights:
    """What was measured. weights: list name -> weight. alone: nDCG@10 of each list. even, fused: of both lists together
    at equal weights and at `weights`. probes: how many there were.
    """

    weights: Mapping[str, float]
    alone: Mapping[str, float]
    even: float
    fused: float
    probes: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "weights": dict(self.weights),
            "alone": dict(self.alone),
            "even": self.even,
            "fused": self.fused,
            "probes": self.probes,
        }


def make_probes(chunks: Sequence[Chunk]) -> list[Probe]:
    """One probe per chunk, in order, bound to documents of their own; a chunk too short to be parted makes none.

    Which sentence is taken depends on the chunk's text alone. A chunk of one sentence is parted near its middle.
    """
    probes: list[Probe] = []
    for chunk in chunks:
        query, rest = _part(chunk.content)
        if query and rest.strip():
            number = len(probes)
            own = replace(chunk, doc_id=f"{number:06}", chunk_index=0, content=rest, start=0, end=len(rest))
            probes.append(Probe(query, replace(own, embedding=None, enabled=True)))
    return probes


def _part(text: str) -> tuple[str, str]:
    sentences = [(a, b) for a, b in split_sentences(text) if b - a >= SENTENCE_CHARS_MIN]
    if len(sentences) >= 2:
        digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
        start, end = sentences[int.from_bytes(digest[:8]) % len(sentences)]
        return text[start:end], text[:start] + text[end:]
    middle = len(text) // 2
    cut = min((match.start() for match in WHITE_SPACE.finditer(text)), key=lambda at: abs(at - middle), default=middle)
    return text[:cut].strip(), text[cut:]


def embed_probes(probes: Sequence[Probe], embedder: Embedder) -> tuple[list[Chunk], list[Vector]]:
    """The probes' chunks with vectors, and the vectors of their questions; outside of a transaction, for it takes long.

    Raises what the embedder raises.
    """
    chunks = embed_chunks([probe.chunk for probe in probes], embedder)
    return list(chunks), [embedder.embed_query(probe.query) for probe in probes]


def measure_list_weights(
    probes: Sequence[Probe], chunks: Sequence[Chunk], questions: Sequence[Vector], store: Store
) -> ListWeights | None:
    """The weights by these probes, ranked as the store's collection ranks; None for fewer than PROBES_MIN.

    chunks, questions: of `embed_probes`. The same probes and vectors give the same weights. Must run inside a
    transaction: the probes are indexed in a schema that is rolled back.
    """
    if len(probes) < PROBES_MIN:
        return None
    plan = RetrievePlan(exact="always")
    rankings: list[dict[str, Sequence[Candidate]]] = []
    with scratch_schema(store.connection):
        pk = create_collection(
            store.connection,
            name="probes",
            embed_model=store.collection.embed_model,
            embed_dims=store.collection.embed_dims,
            language=store.collection.language,
        )
        scratch = Store(store.connection, pk)
        index(chunks, scratch)
        state = read_state(plan, scratch)
        for probe, vector in zip(probes, questions, strict=True):
            lexical = lexical_candidates(normalize(probe.query), plan, scratch, state)
            rankings.append({"vector": vector_candidates(vector, plan, scratch, True), "lexical": lexical})
    return choose_weights(rankings, [(probe.chunk.doc_id, 0) for probe in probes])


def choose_weights(
    rankings: Sequence[Mapping[str, Sequence[Candidate]]], wanted: Sequence[tuple[str, int]]
) -> ListWeights:
    """Even weights where none are better for sure, else the best: by the mean nDCG@10 of the fused list.

    rankings: the lists of each probe, best first; wanted: the key of its chunk. Tried are even weights and SHARES to
    either side; of equal means the most even is best. Even weights stay while they are less than NEAR standard errors
    of the paired difference and less than a share of LOSS_MAX below the best: which point of a grid is best is partly
    chance. Raises ValueError for no rankings.
    """
    if not rankings:
        raise ValueError("no rankings: nothing can be chosen")
    asked = list(zip(rankings, wanted, strict=True))
    gains = [[_gain(_fused_rank(lists, pair, key)) for lists, key in asked] for pair in PAIRS]
    means = [statistics.fmean(of_pair) for of_pair in gains]
    best = means.index(max(means))
    chosen = 0 if _is_near(gains[0], gains[best]) else best
    alone = {name: statistics.fmean(_gain(_rank(lists[name], key)) for lists, key in asked) for name in LISTS}
    return ListWeights(dict(PAIRS[chosen]), alone, means[0], means[chosen], len(asked))


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


def _is_near(gains: Sequence[float], best: Sequence[float]) -> bool:
    lost = [high - low for high, low in zip(best, gains, strict=True)]
    error = statistics.stdev(lost) / math.sqrt(len(lost)) if len(lost) > 1 else 0.0
    return statistics.fmean(lost) <= min(NEAR * error, LOSS_MAX * statistics.fmean(best))
