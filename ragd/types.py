"""Frozen records that travel between the blocks, the Embedder protocol, and the one sort key. Shapes and units beside
the fields."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any, Literal, Protocol

from ragd.conditions import Condition, parse_condition
from ragd.errors import InvalidInput

SPEC_VERSION = "0.2.0"

Vector = Sequence[float]
Mode = Literal["vector", "lexical", "hybrid"]
Exact = Literal["auto", "always", "never"]
Placement = Literal["local", "node", "spread"]
VectorType = Literal["vector", "halfvec"]
ChunkKind = Literal["words", "structure"]
CompressKind = Literal["sentences", "window"]

MODES: tuple[Mode, ...] = ("vector", "lexical", "hybrid")
EXACT_CHOICES: tuple[Exact, ...] = ("auto", "always", "never")
VECTOR_TYPES: tuple[VectorType, ...] = ("vector", "halfvec")
COMPRESS_KINDS: tuple[CompressKind, ...] = ("sentences", "window")
LISTS = ("vector", "lexical")
CODES = "codes"  # the list that a hybrid search adds for the codes of a query (`ragd.search.hops`)
HOP_LISTS = ("hop2", "hop3")  # the lists that a plan with hops adds (`ragd.search.hops`)

RRF_K = 60
RRF_K_MAX = 1_000_000
WEIGHT_MIN = 1e-6
WEIGHT_MAX = 1e6
FINAL_K = 12
CANDIDATE_POOL = 50
POOL_MAX = 1000
HOPS_MAX = 3
TOKEN_BUDGET_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a transcript, times in seconds. A document of segments is their texts joined by a newline."""

    text: str
    t_start: float | None = None
    t_end: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("t_start", self.t_start), ("t_end", self.t_end)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InvalidInput(f"{name} must be a number of seconds from 0, not {value!r}", field=name)
        if self.t_start is not None and self.t_end is not None and self.t_end < self.t_start:
            raise InvalidInput(
                f"t_end must not be before t_start; it is {self.t_end:g}, and t_start {self.t_start:g}", field="t_end"
            )


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """How a document is split.

    target_tokens and overlap_tokens count whitespace-separated words; max_chars counts code points.
    kind "words" slides a window of words; "structure" follows headings, paragraphs, list items, code fences and
    tables, then sentences, then a hard cut.
    """

    kind: ChunkKind = "structure"
    target_tokens: int = 600
    overlap_tokens: int = 120
    max_chars: int = 4000

    def __post_init__(self) -> None:
        if self.kind not in ("words", "structure"):
            raise InvalidInput(f"chunk policy kind must be 'words' or 'structure', not {self.kind!r}", field="kind")
        for name, low in (("target_tokens", 1), ("overlap_tokens", 0), ("max_chars", 1)):
            check_at_least(name, getattr(self, name), low)
        if self.overlap_tokens >= self.target_tokens:
            raise InvalidInput(
                f"overlap_tokens must be smaller than target_tokens ({self.target_tokens}), not {self.overlap_tokens}",
                field="overlap_tokens",
            )

    def fitted(self, window: int | None) -> ChunkPolicy:
        """The policy shrunk to an embedder that reads `window` of its own tokens (None: no limit).

        Five words per eight word pieces leave room for the title and for long words; a fifth of a chunk overlaps.
        """
        if window is None or window * 5 // 8 >= self.target_tokens:
            return self
        target = max(1, window * 5 // 8)
        return replace(
            self,
            target_tokens=target,
            overlap_tokens=min(self.overlap_tokens, target // 5),
            max_chars=min(self.max_chars, window * 5),
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ChunkPolicy:
        return cls(**_known(cls, values))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The retrieval unit. content == document_text[start:end], unless a person changed it (see below).

    doc_id is "" until `bind` sets it. context is the document's title and the heading path: embedded and lexically
    indexed before content, never part of it. embedding, when given, has the collection's embed_dims entries.
    enabled False: it is kept and never retrieved, also while its document is enabled. A chunk that a person changed or
    added says so in attributes["overlay"], "edit" or "add": its place is that of the text which it replaces or follows.
    attributes: what is known of its place and origin, apart from the caller's metadata (the names: docs/chunking.md).
    tokens: the packed token vectors of its embed_text (`ragd.models.late_interaction`), which go with its embedding.
    """

    doc_id: str
    chunk_index: int
    content: str
    start: int
    end: int
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: str = ""
    embedding: Vector | None = None
    enabled: bool = True
    attributes: Mapping[str, Any] = field(default_factory=dict)
    tokens: bytes | None = field(default=None, repr=False)

    @property
    def embed_text(self) -> str:
        """What the embedder and the lexical index read."""
        return f"{self.context}\n{self.content}" if self.context else self.content


@dataclass(frozen=True, slots=True)
class ListRank:
    """One candidate's place in one ranked list. rank starts at 1; score is higher-is-better in its own scale."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A retrieved chunk. score is the score of the last stage (`score_kind`), higher is better.

    ranks keeps the place in every earlier list by its name ("vector", "lexical", "fused", "reranked").
    unit_score is score brought to 0..1 for telemetry and display (the rule per kind is in docs/retrieval.md).
    collection: the name of its collection where several were searched, "" for the first. tokens: what is stored of its
    token vectors, for a reranker that reads them (`ragd.models.reranking.TokenReranker`); no part of the result.
    """

    doc_id: str
    chunk_index: int
    content: str
    score: float
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    context: str = ""
    score_kind: str = "cosine"
    unit_score: float = 0.0
    ranks: Mapping[str, ListRank] = field(default_factory=dict)
    chunk_id: int | None = None
    revision: int = 1
    attributes: Mapping[str, Any] = field(default_factory=dict)
    collection: str = ""
    tokens: bytes | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[str, int]:
        return (self.doc_id, self.chunk_index)

    @property
    def text(self) -> str:
        """What models read: the context and the content, as the embedder does."""
        return f"{self.context}\n{self.content}" if self.context else self.content


def with_score(
    candidate: Candidate, score: float, kind: str, unit_score: float, ranks: Mapping[str, ListRank]
) -> Candidate:
    """A copy with another score, as dataclasses.replace() makes it, in a third of the time."""
    return Candidate(
        candidate.doc_id,
        candidate.chunk_index,
        candidate.content,
        score,
        candidate.tags,
        candidate.metadata,
        candidate.start,
        candidate.end,
        candidate.context,
        kind,
        unit_score,
        ranks,
        candidate.chunk_id,
        candidate.revision,
        candidate.attributes,
        candidate.collection,
        candidate.tokens,
    )


def order_key(score: float, doc_id: str, chunk_index: int) -> tuple[float, str, int]:
    """Best first; ties by (doc_id, chunk_index), as the database's "C" collation sorts them: by UTF-8 bytes, whose
    order is that of the code points."""
    return (-score, doc_id, chunk_index)


def sort_key(candidate: Candidate) -> tuple[float, str, int]:
    """order_key of a candidate."""
    return order_key(candidate.score, candidate.doc_id, candidate.chunk_index)


@dataclass(frozen=True, slots=True)
class Filters:
    """All must hold. Empty means no restriction. metadata is equality on top-level keys; where: a typed filter."""

    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    where: Condition | None = None

    def __bool__(self) -> bool:
        return bool(self.tags_any or self.tags_all or self.metadata or self.where)

    def as_dict(self) -> dict[str, Any]:
        """Without `where` where there is none: a plan keeps the hash that it had before there were typed filters."""
        values = {"tags_any": list(self.tags_any), "tags_all": list(self.tags_all), "metadata": dict(self.metadata)}
        return values | {"where": self.where.as_dict()} if self.where else values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Filters:
        """Raises InvalidInput for a field that is none, and what `parse_condition` raises."""
        raw = _known(cls, values)
        return cls(
            tags_any=tuple(raw.get("tags_any", ())),
            tags_all=tuple(raw.get("tags_all", ())),
            metadata=dict(raw.get("metadata", {})),
            where=parse_condition(raw.get("where")),
        )


# of the numbers of a plan, both included
PLAN_BOUNDS: Mapping[str, tuple[int, int]] = {
    "k": (1, POOL_MAX), "candidate_pool": (1, POOL_MAX), "rrf_k": (1, RRF_K_MAX), "ef_search": (1, POOL_MAX),
    "token_budget": (1, TOKEN_BUDGET_MAX), "hops": (1, HOPS_MAX),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RetrievePlan:
    """Everything that decides a ranking, besides the query and the store. Same plan, same store state, same result.

    k: results wanted. candidate_pool: rows per list, at least k is used. rrf_k and weights: fusion; a list that
    weights leaves out counts 1, one that the mode does not make is ignored (0, or from 0.000001 to 1,000,000). CODES
    with the weight 0: hybrid search fuses its two lists alone.
    exact: "always" scans, "never" uses the HNSW index when there is one, "auto" scans below the store's threshold.
    ef_search: HNSW beam, at least the pool is used. rerank names one of the store's rerankers, which orders the whole
    fused pool before the cut to k; None: the fused order stays.
    compress: "sentences" or "window", spans of the k results within token_budget words (None: 600); None: no spans.
    hops: 1 retrieves once; each hop more retrieves by the names and terms that the one before brought in
    (`ragd.search.hops`).
    """

    mode: Mode = "hybrid"
    k: int = FINAL_K
    candidate_pool: int = CANDIDATE_POOL
    rrf_k: int = RRF_K
    weights: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(LISTS, 1.0))
    filters: Filters = field(default_factory=Filters)
    exact: Exact = "auto"
    ef_search: int | None = None
    rerank: str | None = None
    compress: CompressKind | None = None
    token_budget: int | None = None
    hops: int = 1

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, MODES)
        _one_of("exact", self.exact, EXACT_CHOICES)
        for name, (low, high) in PLAN_BOUNDS.items():
            value = getattr(self, name)
            if value is not None or PLAN_DEFAULTS[name] is not None:
                _between(name, value, low, high)
        # Floats for every list, so that plans that mean the same have the same hash.
        object.__setattr__(self, "weights", _list_weights(self.weights))
        if self.rerank is not None and not _is_name(self.rerank):
            raise InvalidInput(f"rerank must be the name of a reranker, or null, not {self.rerank!r}", field="rerank")
        if self.compress is not None:
            _one_of("compress", self.compress, COMPRESS_KINDS)
        if self.token_budget is not None and self.compress is None:
            raise InvalidInput(
                f"token_budget bounds what compress keeps, and this plan has no compress; set compress to "
                f"{' or '.join(COMPRESS_KINDS)}, or leave token_budget out",
                field="token_budget",
            )

    @property
    def pool(self) -> int:
        """Rows that each list contributes."""
        return max(self.k, self.candidate_pool)

    def as_dict(self) -> dict[str, Any]:
        """Canonical JSON form: every field, filters as lists. Without `hops` where it is 1: a plan keeps the hash that
        it had before there were hops."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "hops" or self.hops > 1}
        return values | {"weights": dict(self.weights), "filters": self.filters.as_dict()}

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the canonical JSON form: stable across processes and machines."""
        return hashlib.sha256(canonical_json(self.as_dict()).encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetrievePlan:
        known = _known(cls, values)
        if isinstance(known.get("filters"), Mapping):
            known["filters"] = Filters.from_dict(known["filters"])
        return cls(**known)


# of the fields that hold one value each
PLAN_DEFAULTS: Mapping[str, Any] = {item.name: item.default for item in fields(RetrievePlan) if item.default != MISSING}


def canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no NaN, UTF-8 text: the form that is hashed and compared byte for byte."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(cls)}
    if unknown := set(values) - names:
        first = sorted(unknown)[0]
        raise InvalidInput(f"unknown field {first!r}; known are {', '.join(sorted(names))}", field=first)
    return dict(values)


def _list_weights(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise InvalidInput(f"weights must map {' and '.join(LISTS)} to numbers, not {values!r}", field="weights")
    if unknown := sorted(set(values) - {*LISTS, CODES}, key=str):
        raise InvalidInput(
            f"weights names {unknown[0]!r}; the lists are {', '.join(LISTS)} and {CODES}", field="weights"
        )
    codes = read_weights(values, (*LISTS, CODES))[CODES]
    return read_weights(values, LISTS) | ({} if codes == 1.0 else {CODES: codes})


def read_weights(values: Mapping[str, object], lists: Sequence[str]) -> dict[str, float]:
    """The weight of each list, 1 where it is not given.

    InvalidInput (field weights) unless each is 0 or from WEIGHT_MIN to WEIGHT_MAX, so that no sum of shares overflows
    or vanishes, and one is above 0.
    """
    weights: dict[str, float] = {}
    for name in lists:
        weight = values.get(name, 1.0)
        if not isinstance(weight, int | float) or isinstance(weight, bool) or not _weighs(weight):
            raise InvalidInput(
                f"weights must be 0 or from {WEIGHT_MIN:f} to {WEIGHT_MAX:.0f}; that of {name!r} is {weight!r}",
                field="weights",
            )
        weights[name] = float(weight)
    if lists and not any(weights.values()):
        raise InvalidInput("weights must have at least one value above 0; all lists have 0", field="weights")
    return weights


def _weighs(weight: float) -> bool:
    return weight == 0 or WEIGHT_MIN <= weight <= WEIGHT_MAX


def _one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}, not {value!r}", field=name)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def check_at_least(name: str, value: object, low: int) -> None:
    """Raises InvalidInput that names the field."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise InvalidInput(f"{name} must be a whole number of at least {low}, not {value!r}", field=name)


def _between(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"{name} must be a whole number from {low} to {high}, not {value!r}", field=name)


class Embedder(Protocol):
    """Turns texts into vectors of unit length. Threads may share one.

    model: its name, kept with the collection. dims: entries per vector. window: how many of its own tokens it reads at
    once, None when there is no limit. system: the provider, for telemetry ("openai", "ragd.local", ...).
    """

    @property
    def model(self) -> str: ...
    @property
    def dims(self) -> int: ...
    @property
    def window(self) -> int | None: ...
    @property
    def system(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        """One vector per text, in order; [] for []. A text longer than the window is embedded in windows, never cut.

        Raises EmptyContent for a blank text, DimensionMismatch and EmbedderError when the model fails.
        """

    def embed_query(self, text: str) -> Vector:
        """The vector of one query."""

    def count_tokens(self, text: str) -> int:
        """How many of the embedder's tokens the text takes, special tokens included. An estimate for remote models."""
