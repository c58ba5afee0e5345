"""rerank(): a model reads query and text together and gives the candidates a new order.

A local cross-encoder from a folder: an ONNX graph and its tokenizer.json, on ONNX Runtime, without torch.

Such a folder is what `optimum-cli export onnx --task text-classification` writes, and what many published rerankers
carry. The graph reads one question with one text and gives one logit, or two: the second then stands for "relevant".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ragd.errors import RerankerError
from ragd.models.graph_folder import GraphFolder
from ragd.text.languages import find_readable
from ragd.text.windows import LONE_SURROGATE
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
    """A reranker that knows which candidates its model can read (see `ragd.text.languages`)."""

    def find_readable(self, query: str, candidates: Sequence[Candidate]) -> Sequence[bool]: ...


@runtime_checkable
class TokenReranker(Protocol):
    """A reranker that reads the stored token vectors of the first `reads_tokens` candidates, where they have some, and
    the first bytes of those behind (`ragd.models.late_interaction`). Scores do not depend on what is stored."""

    @property
    def reads_tokens(self) -> int: ...


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
    readable = model.find_readable(query, candidates)
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

    def find_readable(self, query: str, candidates: Sequence[Candidate]) -> list[bool]:
        """For each candidate, whether the tokenizer knows its script (see `ragd.text.languages`)."""
        tokenizer, _ = self.files.open(self._prepare)
        query, *texts = [LONE_SURROGATE.sub("\ufffd", text) for text in (query, *(each.text for each in candidates))]
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
