"""The built-in reranker over the real local model: its sum by hand, determinism, windows, cache, depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ragd.errors import EmbedderError, InvalidInput
from ragd.models import minilm
from ragd.models.embedding import LocalEmbedder
from ragd.models.late_interaction import BEHIND, LateInteraction, Parts, combine
from ragd.models.reranking import rerank
from ragd.types import Candidate, ListRank

QUERY = "How do I stop the pump from leaking oil?"
TEXTS = [
    "The canteen opens at noon and serves soup.",
    "Replace the worn seal: this ends oil leaks at the pump.",
    "Pumps were invented long ago.",
    "Oil prices rose again.",
]


def candidates_of(texts: list[str], **ranks: list[float]) -> list[Candidate]:
    return [
        Candidate(f"d{place}", 0, text, 0.1, ranks={name: ListRank(1, scores[place]) for name, scores in ranks.items()})
        for place, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def reranker() -> LateInteraction:
    return LateInteraction(threads=2)


def test_the_text_that_answers_comes_first(reranker: LateInteraction) -> None:
    ranked = rerank(QUERY, candidates_of(TEXTS), reranker)
    assert ranked[0].content == TEXTS[1] and ranked[-1].content == TEXTS[0]
    assert all(0 < item.score < 1 and item.unit_score == item.score for item in ranked)


def test_the_parts_are_those_of_the_token_embeddings(reranker: LateInteraction) -> None:
    model = minilm.open_model()
    asked, text = model.tokenize(QUERY), model.tokenize(TEXTS[1])
    question = model.token_vectors(asked).astype(np.float64)
    tokens = model.token_vectors(text)[1:-1].astype(np.float64)
    question /= np.linalg.norm(question, axis=1, keepdims=True)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    (part,) = reranker.compare(QUERY, [TEXTS[1]])
    assert part.best == pytest.approx((question @ tokens.T).max(axis=1), abs=1e-3)
    assert list(part.held[1:-1]) == [token in text for token in asked] and not part.held[[0, -1]].any()
    one, other = LocalEmbedder(threads=1).embed([QUERY, TEXTS[1]])
    assert part.cosine == pytest.approx(float(np.dot(one, other)), abs=1e-3)


def test_the_sum_done_by_hand() -> None:
    first = Parts(np.asarray([0.9, 0.8, 0.4, 0.7]), np.asarray([False, True, False, False]), 0.5)
    second = Parts(np.asarray([0.6, 0.2, 1.0, 0.5]), np.asarray([False, True, True, False]), 0.3)
    rare, common = math.sqrt(math.log(1 + 1.5 / 1.5)), math.sqrt(0.5)  # one of two holds it; both: 0.18, so 0.5
    total = 2 + rare + common
    wanted = [
        ((0.9 + 0.8 * common + 0.4 * rare + 0.7) / total + 0.3 * 0.5 + 0.05 * 0.25) / 1.35,
        ((0.6 + 0.2 * common + 1.0 * rare + 0.5) / total + 0.3 * 0.3 + 0.05 * 1.0) / 1.35,
    ]
    assert combine([first, second], [2.0, 8.0]) == pytest.approx(wanted, abs=1e-6)
    assert combine([], []) == []


def test_the_lexical_score_counts_by_its_share_of_the_best(reranker: LateInteraction) -> None:
    plain = reranker.score_candidates(QUERY, candidates_of(TEXTS))
    scored = reranker.score_candidates(QUERY, candidates_of(TEXTS, lexical=[0.0, 10.0, 5.0, 2.5]))
    assert [new - old for new, old in zip(scored, plain, strict=True)] == pytest.approx(
        [0.0, 0.05 / 1.35, 0.025 / 1.35, 0.0125 / 1.35], abs=2e-6
    )


def test_equal_input_gives_equal_scores_whatever_the_threads_and_the_cache(reranker: LateInteraction) -> None:
    texts = [*TEXTS, TEXTS[1], "word " * 700]
    scores = reranker.score_candidates(QUERY, candidates_of(texts))
    assert scores == reranker.score_candidates(QUERY, candidates_of(texts))
    assert scores == LateInteraction(threads=1, cached_windows=0).score_candidates(QUERY, candidates_of(texts))
    assert scores[1] == scores[4]


def test_those_behind_the_depth_keep_their_order_and_are_not_read() -> None:
    shallow = LateInteraction(depth=2, threads=1)
    ranked = rerank(QUERY, candidates_of(TEXTS), shallow)
    assert [item.doc_id for item in ranked] == ["d1", "d0", "d2", "d3"]
    assert ranked[1].score - ranked[2].score == pytest.approx(BEHIND)
    assert shallow._token_vectors.cache_info().misses == 2


def test_a_long_text_is_read_to_its_end(reranker: LateInteraction) -> None:
    padding = "The canteen opens at noon and serves soup. " * 80
    without, with_end = reranker.compare(QUERY, [padding, padding + TEXTS[1]])
    assert with_end.best.mean() > without.best.mean() + 0.1


def test_vectors_of_the_same_window_are_computed_once() -> None:
    cached = LateInteraction(threads=1, cached_windows=3)
    cached.score_candidates(QUERY, candidates_of([TEXTS[0], TEXTS[0], TEXTS[1]]))
    cached.score_candidates("Another question?", candidates_of([TEXTS[1]]))
    assert cached._token_vectors.cache_info().misses == 2
    cached.score_candidates(QUERY, candidates_of(TEXTS))
    assert cached._token_vectors.cache_info().currsize == 3


@pytest.mark.parametrize("text", ["\u200b", "\ud800", "🦀" * 300, "x" * 3000, "\x00"])
def test_odd_texts_and_questions_have_finite_scores(reranker: LateInteraction, text: str) -> None:
    for query, candidates in ((text, candidates_of(TEXTS)), (QUERY, candidates_of([text]))):
        assert np.isfinite(reranker.score_candidates(query, candidates)).all()


def test_no_candidates(reranker: LateInteraction) -> None:
    assert reranker.score_candidates(QUERY, []) == []
    assert reranker.compare(QUERY, []) == []


def test_a_missing_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "find_model", lambda: None)
    with pytest.raises(EmbedderError, match="requirements-model"):
        LateInteraction().score_candidates(QUERY, candidates_of(TEXTS))


@pytest.mark.parametrize("options", [{"depth": 0}, {"threads": 0}, {"cached_windows": -1}, {"depth": True}])
def test_wrong_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        LateInteraction(**options)
    assert refused.value.field in options


def test_the_told_parts_add_up_to_the_scores() -> None:
    reranker = LateInteraction(threads=2, depth=3)
    candidates = candidates_of(TEXTS, lexical=[0.5, 4.0, 2.0, 1.0])
    told = reranker.explain_candidates(QUERY, candidates)
    scores = reranker.score_candidates(QUERY, candidates)
    assert [len(parts) for parts in told] == [3, 3, 3, 0]
    for parts, score in zip(told[:3], scores, strict=False):
        assert math.fsum(part["share"] for part in parts) == pytest.approx(score, abs=1e-6)
        tokens = parts[0]["tokens"]
        mean = sum(token["weight"] * token["best"] for token in tokens) / sum(token["weight"] for token in tokens)
        assert parts[0]["value"] == pytest.approx(mean)
    assert [token["token"] for token in told[1][0]["tokens"] if token["held"]] == ["the", "pump", "oil"]
    assert reranker.explain_candidates(QUERY, []) == []
