"""rerank(): a model reads query and text together and gives the candidates a new order.

A local cross-encoder from a folder: an ONNX graph and its tokenizer.json, on ONNX Runtime, without torch.

Such a folder is what `optimum-cli export onnx --task text-classification` writes, and what many published rerankers
carry. The graph reads one question with one text and gives one logit, or two: the second then stands for "relevant".

A reranker behind the `/rerank` request that Cohere, Jina, vLLM and text-embeddings-inference (TEI) share.

    {"model", "query", "documents", "top_n"}    ->  {"results": [{"index", "relevance_score"}, ...]}
    {"query", "texts", "truncate"}   (TEI)      ->  [{"index", "score"}, ...]

Both answer with the logistic of the model's output, 0 to 1. llama.cpp answers with that output itself.

The built-in reranker: late interaction over the token embeddings of the local model.

Late interaction is Khattab and Zaharia's, "ColBERT", SIGIR 2020: every token of the question is compared with every
token of a text, and the best match of each counts. The local model was trained for whole texts and not for this; that
its tokens serve all the same, and what its cosine and BM25 add, was measured on the training questions of SciFact
(benchmarks/bench_rerank.py finds the weights again).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import httpx2
import numpy as np
import numpy.typing as npt

from ragd.errors import RerankerError
from ragd.models import minilm
from ragd.models.graph_folder import GraphFolder, available_cores
from ragd.models.openai_client import (
    QUOTED_CHARS,
    EndpointError,
    RetryPolicy,
    Server,
    check_base_url,
    endpoint_errors,
    open_client,
    public_address,
    request_timeout,
    shortened,
)
from ragd.text.languages import find_readable
from ragd.text.windows import LONE_SURROGATE, FloatArray, average_windows
from ragd.types import Candidate, ListRank, check_at_least, sort_key

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer


class Reranker(Protocol):
    """Scores texts against a query: one finite number per text, in their order, higher is better.

    Equal input must give equal scores. A reranker whose scores are probabilities already (0 to 1) says so with a true
    attribute `scores_are_probabilities`; others are taken to give logits.
    """

    @property
    def name(self) -> str: ...

    def score(self, query: str, texts: list[str]) -> Sequence[float]: ...


@runtime_checkable
class CandidateReranker(Protocol):
    """A Reranker that also reads what the earlier stages say of the candidates. They come best first."""

    @property
    def name(self) -> str: ...

    def score_candidates(self, query: str, candidates: Sequence[Candidate]) -> Sequence[float]: ...


@runtime_checkable
class SelectiveReranker(Protocol):
    """A reranker that knows which texts its model can read (see `ragd.text.languages`)."""

    def find_readable(self, query: str, texts: Sequence[str]) -> Sequence[bool]: ...


AnyReranker = Reranker | CandidateReranker


def rerank(query: str, candidates: Sequence[Candidate], model: AnyReranker | None = None) -> list[Candidate]:
    """The candidates in the order of the model's scores, ties by (doc_id, chunk_index).

    Without a model they come back as they are; without candidates the model is not asked. The model reads each
    candidate's context and content, as the embedder does. score becomes the model's (score_kind "rerank"), unit_score
    its logistic, or the score itself where it is a probability. ranks keeps the earlier places and adds "reranked".
    RerankerError when the model gives another number of scores, or one that is no finite number.

    A candidate that a `SelectiveReranker` cannot read keeps its place, its score and its ranks, without "reranked"; the
    others are ordered among the places that are left. So a list in a language of which the model knows nothing comes
    back as it is, and one text in another language neither rises nor falls.
    """
    if model is None or not candidates:
        return list(candidates)
    read = select_readable(query, candidates, model)
    keys = {candidate.key for candidate in read}
    ranked = iter(_score(query, read, model))
    return [
        _with_rank(next(ranked), rank) if candidate.key in keys else candidate
        for rank, candidate in enumerate(candidates, start=1)
    ]


def select_readable(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> list[Candidate]:
    """The candidates that the model can read beside the query, in their order; all where the model cannot tell."""
    if not isinstance(model, SelectiveReranker):
        return list(candidates)
    readable = model.find_readable(query, [candidate.text for candidate in candidates])
    return [candidate for candidate, can_read in zip(candidates, readable, strict=True) if can_read]


def _score(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> list[Candidate]:
    """The candidates with the model's scores, in their order."""
    if not candidates:
        return []
    scores = _checked(model, _ask(query, candidates, model), len(candidates))
    is_probability = bool(getattr(model, "scores_are_probabilities", False))
    scored = [
        replace(candidate, score=score, score_kind="rerank", unit_score=_unit(score, is_probability))
        for candidate, score in zip(candidates, scores, strict=True)
    ]
    return sorted(scored, key=sort_key)


def _with_rank(candidate: Candidate, rank: int) -> Candidate:
    return replace(candidate, ranks={**candidate.ranks, "reranked": ListRank(rank, candidate.score)})


def _ask(query: str, candidates: Sequence[Candidate], model: AnyReranker) -> Sequence[float]:
    if isinstance(model, CandidateReranker):
        return model.score_candidates(query, candidates)
    return model.score(query, [candidate.text for candidate in candidates])


def _checked(model: AnyReranker, values: Sequence[float], expected: int) -> list[float]:
    try:
        scores = [float(score) for score in values]
    except (TypeError, ValueError) as error:
        raise RerankerError(f"reranker {model.name!r} must give one number per text; it gave {error}") from error
    if len(scores) != expected:
        raise RerankerError(f"reranker {model.name!r} must give {expected} scores, one per text; it gave {len(scores)}")
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise RerankerError(f"reranker {model.name!r} must give finite scores; text {index} got {score}")
    return scores


def _unit(score: float, is_probability: bool) -> float:
    if is_probability:
        return min(1.0, max(0.0, score))
    tail = math.exp(-abs(score))
    return 1 / (1 + tail) if score >= 0 else tail / (1 + tail)


WINDOW = 512


class CrossEncoder:
    """path: a folder with model.onnx (or onnx/model.onnx) and tokenizer.json, or the .onnx file itself.

    window: tokens that the model reads at once, question and special tokens included. A longer text is read in windows
    and scores as its best one, so nothing is cut; of a question at most half a window is read. A score depends on
    question and text alone: one pair per run on one thread, `threads` of them side by side. Files are opened at the
    first call, once per process. Threads may share it.
    """

    def __init__(self, path: Path | str, *, window: int = WINDOW, threads: int = 1) -> None:
        check_at_least("window", window, 16)
        check_at_least("threads", threads, 1)
        self.files = GraphFolder(path, kind="cross-encoder", refusal=RerankerError)
        self.window, self.threads = window, threads

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.files.name

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """One logit per text, in their order. [] for no texts.

        RerankerError when the files are missing, cannot be read, or are those of another kind of model.
        """
        if not texts:
            return []
        tokenizer, session = self.files.open(self._prepare)
        question = self._shortened(LONE_SURROGATE.sub("\ufffd", query), tokenizer)
        pairs = [list(self._windows(question, LONE_SURROGATE.sub("\ufffd", text), tokenizer)) for text in texts]
        if self.threads == 1:
            return [max(self._run(session, window) for window in windows) for windows in pairs]
        with ThreadPoolExecutor(self.threads, thread_name_prefix="ragd-rerank") as pool:
            return list(pool.map(lambda windows: max(self._run(session, window) for window in windows), pairs))

    def find_readable(self, query: str, texts: Sequence[str]) -> list[bool]:
        """For each text, whether the tokenizer knows its script (see `ragd.text.languages`)."""
        tokenizer, _ = self.files.open(self._prepare)
        query, *texts = [LONE_SURROGATE.sub("\ufffd", text) for text in (query, *texts)]
        return find_readable(tokenizer, query, texts)

    def _shortened(self, query: str, tokenizer: Tokenizer) -> str:
        """The question's first tokens, at most half a window."""
        most = self.window // 2
        offsets = [
            position for position in tokenizer.encode("", query, add_special_tokens=False).offsets if position[1]
        ]
        return query if len(offsets) <= most else query[: offsets[most - 1][1]]

    def _windows(self, query: str, text: str, tokenizer: Tokenizer) -> Iterator[Encoding]:
        encoding = tokenizer.encode(query, text)
        yield encoding
        yield from encoding.overflowing

    def _run(self, session: InferenceSession, window: Encoding) -> float:
        logits = self.files.run(session, window).reshape(-1)
        if logits.size not in (1, 2):
            raise self.files.refuse(f"gives {logits.size} numbers per pair; expected one logit, or two classes")
        return float(logits[-1] - logits[0]) if logits.size == 2 else float(logits[0])

    def _prepare(self, tokenizer: Tokenizer) -> None:
        tokenizer.enable_truncation(self.window, strategy="only_second")


BATCH_SIZE = 100
POLICY = RetryPolicy(max_retries=3, deadline_s=60.0)
TEI_BATCH_SIZE = 32  # what TEI accepts unless it is started with --max-client-batch-size
HINTS = {404: "check its address and the model's name", 413: "make the batch or the pool smaller"}


class EndpointReranker:
    """POST the server's base_url + "/rerank" (which may name it already). Threads may share it; a fork opens its own.

    model "" is not sent: a TEI server has one. The request begins in the common form; a server that asks for `texts`
    gets TEI's from then on. Texts travel in batches of at most `batch_size` (for TEI of at most 32). The policy's
    deadline is that of all batches. gives_logits: the server answers with the model's output (llama.cpp), and the
    logistic is taken here. wants_texts: the server is TEI, which the first answer tells otherwise.
    """

    scores_are_probabilities = True

    def __init__(
        self,
        server: Server,
        model: str = "",
        *,
        policy: RetryPolicy = POLICY,
        batch_size: int = BATCH_SIZE,
        gives_logits: bool = False,
        wants_texts: bool = False,
    ) -> None:
        check_base_url(server.base_url)
        address = urlsplit(server.base_url)
        check_at_least("batch_size", batch_size, 1)
        path = address.path.rstrip("/")
        self.url = address._replace(path=path if path.endswith("/rerank") else f"{path}/rerank").geturl()
        self.model, self._api_key, self.batch_size, self.policy = model, server.api_key, batch_size, policy
        self._wants_texts, self._gives_logits, self._key_header = wants_texts, gives_logits, server.key_header

    @property
    def name(self) -> str:
        """The model's name, or the host when the endpoint has only one."""
        return self.model or urlsplit(self.url).hostname or "endpoint"

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        """The endpoint's relevance, 0 to 1, of each text, in their order. [] for no texts.

        RerankerError says what the endpoint answered and what to do: unreachable, refused key, limit, another shape,
        missing or repeated texts, a score that is no finite number.
        """
        deadline = time.monotonic() + self.policy.deadline_s
        scores: list[float] = []
        while len(scores) < len(texts):
            size = min(self.batch_size, TEI_BATCH_SIZE) if self._wants_texts else self.batch_size
            batch = texts[len(scores) : len(scores) + size]
            try:
                scores += self._request(query, batch, deadline)
            except EndpointError as error:
                if self._wants_texts or "texts" not in error.body:
                    raise self._final(error) from error
                self._wants_texts = True
        return scores

    def _request(self, query: str, batch: list[str], deadline: float) -> list[float]:
        body = self._body(query, batch)
        return self.policy.run(lambda timeout_s: self._read(self._send(body, timeout_s), batch), deadline=deadline)

    def _body(self, query: str, batch: list[str]) -> dict[str, Any]:
        if self._wants_texts:
            return {"query": query, "texts": batch, "raw_scores": False, "truncate": True}
        named = {"model": self.model} if self.model else {}
        return {**named, "query": query, "documents": batch, "top_n": len(batch)}

    def _send(self, body: dict[str, Any], timeout_s: float) -> bytes:
        """The body of a 2xx answer."""
        # A lone surrogate has no encoding; the escapes of JSON would carry it to a server that cannot read it.
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        options: Any = {"timeout": request_timeout(timeout_s), "headers": {"Content-Type": "application/json"}}
        with endpoint_errors(timeout_s):
            client = open_client(self.url, self._api_key, self._key_header)
            return client.post(self.url, cast_to=httpx2.Response, content=content, options=options).content

    def _read(self, body: bytes, batch: list[str]) -> list[float]:
        try:
            rows = list(_rows(json.loads(body)))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            beginning = body[:QUOTED_CHARS].decode(errors="replace")
            message = f"gave an answer that is not the JSON of a /rerank endpoint; it begins with {beginning!r}"
            raise EndpointError("malformed", message) from error
        if sorted(index for index, _ in rows) != list(range(len(batch))):
            message = (
                f"gave scores for the texts {shortened(str(sorted(index for index, _ in rows)))}, "
                f"expected one for each of 0 to {len(batch) - 1}; use a server that scores every text it is given"
            )
            raise EndpointError("count", message, retryable=False)
        scores = {index: _logistic(score) if self._gives_logits else score for index, score in rows}
        return [scores[index] for index in range(len(batch))]

    def _final(self, failure: EndpointError) -> RerankerError:
        model = f" (model {self.model!r})" if self.model else ""
        message = f"the reranking endpoint {public_address(self.url)}{model} {failure.message}"
        if failure.status in HINTS:
            message += f"; {HINTS[failure.status]}"
        if failure.retry_after_s is not None:
            message += f"; it asks to wait {failure.retry_after_s:.0f} s"
        return RerankerError(message, retryable=failure.retryable)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def _rows(answer: Any) -> Iterator[tuple[int, float]]:
    """(index, score) of each row of either shape; ValueError, TypeError or KeyError for anything else."""
    rows = answer["results"] if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise TypeError("the results must be a list")
    for row in rows:
        index, score = row["index"], row["relevance_score"] if "relevance_score" in row else row["score"]
        if not isinstance(index, int) or isinstance(index, bool):
            raise TypeError("an index must be a whole number")
        if not isinstance(score, int | float) or isinstance(score, bool) or not math.isfinite(score):
            raise ValueError("a score must be a finite number")
        yield index, float(score)


HalfArray = npt.NDArray[np.float16]

DEPTH = 24  # twice the default k; more brought nothing
COSINE_WEIGHT = 0.3
BM25_WEIGHT = 0.05
IDF_MIN = 0.5
CACHED_WINDOWS = 256  # of at most 256 tokens with 384 numbers of 2 bytes: 50 MB
DIGITS = 6  # what is below differs between machines
BEHIND = 0.001


@dataclass(frozen=True, slots=True)
class Parts:
    """What a text's score is made of. best: for each token of the question its best cosine, float64 [tokens].

    held: bool [tokens], whether the text holds that very token. cosine: of the whole texts.
    """

    best: npt.NDArray[np.float64]
    held: npt.NDArray[np.bool_]
    cosine: float


class LateInteraction:
    """Reads the first `depth` candidates; those behind keep their order, each 0.001 below the one before.

    The score, 0 to 1 for any real text, is (maxsim + 0.3 * cosine + 0.05 * bm25) / 1.35.

    maxsim: the mean, over the question's tokens ([CLS] and [SEP] included, of a long question the first 254), of the
    best cosine with any token of the text. A token weighs the root of its idf over the texts read, at least 0.5 under
    the root; [CLS] and [SEP] weigh 1. cosine: of the local model's vectors of question and text, whatever the
    collection's own model is. bm25: the score in the lexical list over the highest among the texts read, 0 for a
    candidate that is not in that list.

    Deterministic for question and candidates. A text longer than 256 tokens is read in windows, never cut. The vectors
    of `cached_windows` windows are kept for this process, by content. `threads` (default: the cores that this process
    may use) windows are computed side by side. `folder` names another place of the model's files. Raises EmbedderError
    when the model is missing or damaged.
    """

    name = "minilm-late-interaction"
    scores_are_probabilities = True

    def __init__(
        self,
        *,
        depth: int = DEPTH,
        threads: int | None = None,
        cached_windows: int = CACHED_WINDOWS,
        folder: Path | None = None,
    ) -> None:
        for name, value, low in (("depth", depth, 1), ("threads", threads, 1), ("cached_windows", cached_windows, 0)):
            if value is not None:
                check_at_least(name, value, low)
        self.depth, self.folder = depth, folder
        self.threads = threads or available_cores()
        self._token_vectors = lru_cache(maxsize=cached_windows)(self._compute)

    def find_readable(self, query: str, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it is English, as the model is, or at least the query and the text are in its script.

        See `ragd.text.languages.find_readable`.
        """
        return minilm.open_model(self.folder).find_readable(query, texts)

    def score_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, in their order; the candidates are given best first. [] for none."""
        read = candidates[: self.depth]
        if not read:
            return []
        parts = self.compare(query, [candidate.text for candidate in read])
        scores = combine(parts, [_bm25(candidate) for candidate in read])
        lowest = min(scores)
        behind = [round(lowest - BEHIND * index, DIGITS) for index in range(1, len(candidates) - len(read) + 1)]
        return scores + behind

    def explain_candidates(self, query: str, candidates: Sequence[Candidate]) -> list[list[dict[str, Any]]]:
        """What each score of `score_candidates` is made of; [] for a candidate behind the first `depth`.

        Three parts {part, weight, value, share}: share = weight * value / 1.35, and the shares add up to the score but
        for its rounding to 6 digits. The first, "maxsim", has tokens too: {token, weight, best, held}; its value is the
        weighted mean of best.
        """
        read = candidates[: self.depth]
        if not read:
            return [[] for _ in candidates]
        model = minilm.open_model(self.folder)
        query_ids = model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", query)))[0]
        spelt = model.spell([minilm.FIRST_TOKEN, *query_ids, minilm.LAST_TOKEN])
        parts = self.compare(query, [candidate.text for candidate in read])
        weights = _token_weights(parts, IDF_MIN)
        words = [_bm25(candidate) for candidate in read]
        highest = max(words) or 1.0
        details = [
            [
                _share("maxsim", 1.0, float(part.best @ weights / weights.sum()))
                | {
                    "tokens": [
                        {"token": token, "weight": float(weight), "best": float(best), "held": bool(held)}
                        for token, weight, best, held in zip(spelt, weights, part.best, part.held, strict=True)
                    ]
                },
                _share("cosine", COSINE_WEIGHT, part.cosine),
                _share("bm25", BM25_WEIGHT, score / highest),
            ]
            for part, score in zip(parts, words, strict=True)
        ]
        return [*details, *([] for _ in candidates[self.depth :])]

    def compare(self, query: str, texts: Sequence[str]) -> list[Parts]:
        """What the model says of each text, in their order; equal texts get equal parts."""
        if not texts:
            return []
        model = minilm.open_model(self.folder)
        query_ids = model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", query)))[0]
        question = model.token_vectors(query_ids)
        read = {
            text: model.split_windows(model.tokenize(LONE_SURROGATE.sub("\ufffd", text)))
            for text in dict.fromkeys(texts)
        }
        vectors = self._vectors_of(read.values())
        best = _best_cosines(question, vectors)
        query_mean = average_windows([question.mean(axis=0)], [1]).astype(np.float64)
        ids = np.asarray([minilm.FIRST_TOKEN, *query_ids, minilm.LAST_TOKEN])
        parts = {}
        for index, (text, windows) in enumerate(read.items()):
            means = [window.mean(axis=0, dtype=np.float32) for window in vectors[index]]
            mean = average_windows(means, [max(1, len(window)) for window in windows])
            held = np.isin(ids, np.concatenate(windows))
            parts[text] = Parts(best[index], held, float(query_mean @ mean))
        return [parts[text] for text in texts]

    def _vectors_of(self, read: Iterable[Sequence[minilm.TokenIds]]) -> list[list[HalfArray]]:
        """The token embeddings of each window of each text; an equal window once."""
        texts = [[window.tobytes() for window in windows] for windows in read]
        keys = list(dict.fromkeys(key for windows in texts for key in windows))
        with ThreadPoolExecutor(min(self.threads, len(keys)), thread_name_prefix="ragd-rerank") as pool:
            vectors = dict(zip(keys, pool.map(self._token_vectors, keys), strict=True))
        return [[vectors[key] for key in windows] for windows in texts]

    def _compute(self, window: bytes) -> HalfArray:
        """The token embeddings of one window of ids, [CLS] and [SEP] included, not normalised: [length + 2, 384]."""
        ids = np.frombuffer(window, dtype=np.int64)
        return minilm.open_model(self.folder).token_vectors(ids).astype(np.float16)


def combine(
    parts: Sequence[Parts],
    bm25: Sequence[float],
    *,
    cosine_weight: float = COSINE_WEIGHT,
    bm25_weight: float = BM25_WEIGHT,
    idf_min: float = IDF_MIN,
) -> list[float]:
    """The scores of texts from their parts and their BM25 scores, as `LateInteraction` describes. [] for no texts."""
    if not parts:
        return []
    weights = _token_weights(parts, idf_min)
    highest = max(bm25) or 1.0
    total = 1.0 + cosine_weight + bm25_weight
    return [
        round(
            float(
                (part.best @ weights / weights.sum() + cosine_weight * part.cosine + bm25_weight * words / highest)
                / total
            ),
            DIGITS,
        )
        for part, words in zip(parts, bm25, strict=True)
    ]


def _token_weights(parts: Sequence[Parts], idf_min: float) -> npt.NDArray[np.float64]:
    """The root of each token's idf over the texts read; 1 for [CLS] and [SEP]."""
    holding = np.sum([part.held for part in parts], axis=0)
    idf = np.log1p((len(parts) - holding + 0.5) / (holding + 0.5))
    weights: npt.NDArray[np.float64] = np.sqrt(np.maximum(idf, idf_min))
    weights[[0, -1]] = 1.0
    return weights


def _share(part: str, weight: float, value: float) -> dict[str, Any]:
    total = 1.0 + COSINE_WEIGHT + BM25_WEIGHT
    return {"part": part, "weight": weight, "value": value, "share": weight * value / total}


def _best_cosines(question: FloatArray, texts: Sequence[Sequence[HalfArray]]) -> list[npt.NDArray[np.float64]]:
    """For each text the best cosine of each token of the question with a token of the text, [CLS] and [SEP] left out
    unless it has no others. One product for all texts: the library behind numpy is slow at many small ones."""
    inner = []
    for windows in texts:
        tokens = np.concatenate([window[1:-1] for window in windows])
        inner.append(tokens if len(tokens) else windows[0])
    cosines = _units(question) @ _units(np.concatenate(inner).astype(np.float32)).T
    starts = np.cumsum([0, *(len(tokens) for tokens in inner[:-1])])
    return list(np.maximum.reduceat(cosines, starts, axis=1).T.astype(np.float64))


def _units(vectors: FloatArray) -> FloatArray:
    units: FloatArray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return units


def _bm25(candidate: Candidate) -> float:
    list_rank = candidate.ranks.get("lexical")
    return list_rank.score if list_rank else 0.0
