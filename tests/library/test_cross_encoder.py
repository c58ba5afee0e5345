"""A cross-encoder from a folder: a graph of a few nodes, made here, that sums up weights of the text's words.
The built-in reranker over the real local model: its sum by hand, determinism, windows, cache, depth."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from ragd.errors import EmbedderError, InvalidInput, RerankerError
from ragd.models import minilm
from ragd.models.embedding import LocalEmbedder
from ragd.models.late_interaction import BEHIND, LateInteraction, Parts, TokenMatcher, combine
from ragd.models.reranking import CrossEncoder, rerank
from ragd.types import Candidate, ListRank

WORDS = ["[UNK]", "[CLS]", "[SEP]", "sea", "red", "house", "oak", "wave"]
WEIGHTS = {"sea": 3.0, "wave": 1.0, "oak": -2.0}
TYPE_INPUT = "token_type_ids"


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_graph(path: Path, *, classes: int = 1, extra_input: str = "") -> None:
    """logit = the sum of the weights of the text's words (type 1); two classes: (0, logit); three: three of them."""
    weights = np.asarray([WEIGHTS.get(word, 0.0) for word in WORDS], dtype=np.float32)
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["each"]),
        helper.make_node("Cast", [TYPE_INPUT], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["each", "types"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "axis"], ["sum"], keepdims=1),
        helper.make_node("Mul", ["sum", "spread"], ["logits"]),
    ]
    spread = {1: [1.0], 2: [0.0, 1.0], 3: [1.0, 1.0, 1.0]}[classes]
    constants = [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(np.asarray([1], dtype=np.int64), "axis"),
        numpy_helper.from_array(np.asarray([spread], dtype=np.float32), "spread"),
    ]
    names = ["input_ids", TYPE_INPUT] + ([extra_input] if extra_input else [])
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny-reranker"
    made.mkdir()
    write_tokenizer(made)
    write_graph(made / "model.onnx")
    return made


def test_the_logits_of_the_pairs_in_the_order_of_the_texts(folder: Path) -> None:
    texts = ["red sea", "oak house", "sea wave sea", "house"]
    assert CrossEncoder(folder).score("sea", texts) == [3.0, -2.0, 7.0, 0.0]
    assert CrossEncoder(folder, threads=3).score("sea", texts) == [3.0, -2.0, 7.0, 0.0]
    assert CrossEncoder(folder).score("sea", []) == []


def test_logits_become_unit_scores_through_the_logistic(folder: Path) -> None:
    found = rerank("sea", [Candidate("a", 0, "oak", 0.1), Candidate("b", 0, "sea", 0.1)], CrossEncoder(folder))
    assert [(item.doc_id, item.score) for item in found] == [("b", 3.0), ("a", -2.0)]
    assert found[0].unit_score == pytest.approx(1 / (1 + math.exp(-3)))


def test_the_second_of_two_classes_is_the_relevant_one(folder: Path) -> None:
    write_graph(folder / "model.onnx", classes=2)
    assert CrossEncoder(folder).score("x", ["sea", "oak"]) == [3.0, -2.0]


def test_a_long_text_scores_as_its_best_window(folder: Path) -> None:
    encoder = CrossEncoder(folder, window=16)
    assert encoder.score("sea", ["house " * 40 + "sea"]) == [3.0]
    assert encoder.score("sea", ["sea " + "house " * 40 + "sea sea"]) == [6.0]


def test_a_long_question_leaves_room_for_the_text(folder: Path) -> None:
    assert CrossEncoder(folder, window=16).score("red " * 50, ["sea", "oak"]) == [3.0, -2.0]


def test_a_graph_that_cannot_read_its_tokens_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.library.test_cross_encoder.WORDS", WORDS[:4])
    write_graph(folder / "model.onnx")
    with pytest.raises(RerankerError):
        CrossEncoder(folder).score("x", ["house"])


def test_where_the_files_may_lie(folder: Path) -> None:
    for place in ("onnx/model.onnx", "other.onnx"):
        write_graph(folder / place)
    (folder / "model.onnx").unlink()
    for path in (folder, str(folder), folder / "onnx" / "model.onnx", folder / "other.onnx"):
        encoder = CrossEncoder(path)
        assert encoder.score("x", ["sea"]) == [3.0]
        assert encoder.name == "tiny-reranker"


def test_odd_texts_are_only_text(folder: Path) -> None:
    assert CrossEncoder(folder).score("\ud800", ["", "sea \ud800", "\x00"]) == [0.0, 3.0, 0.0]


def test_a_forked_child_opens_its_own_session(folder: Path) -> None:
    encoder = CrossEncoder(folder)
    encoder.score("x", ["sea"])
    child = os.fork()
    if child == 0:
        os._exit(0 if encoder.score("x", ["sea"]) == [3.0] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_cross_encoder_is_refused_with_its_path(folder: Path) -> None:
    def refusal() -> str:
        with pytest.raises(RerankerError) as caught:
            CrossEncoder(folder).score("x", ["y"])
        assert str(folder) in caught.value.message
        return caught.value.message

    write_graph(folder / "model.onnx", classes=3)
    assert "3 numbers per pair" in refusal()
    write_graph(folder / "model.onnx", extra_input="pixel_values")
    assert "'pixel_values'" in refusal()
    (folder / "model.onnx").write_bytes(b"no graph")
    assert "cannot be opened" in refusal()
    (folder / "model.onnx").unlink()
    assert "has no model.onnx" in refusal()
    write_graph(folder / "model.onnx")
    (folder / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in refusal()


@pytest.mark.parametrize("options", [{"window": 15}, {"threads": 0}, {"window": 64.0}])
def test_wrong_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        CrossEncoder("anywhere", **options)
    assert refused.value.field in options


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


def test_the_parts_are_about_those_of_the_token_embeddings(reranker: LateInteraction) -> None:
    model = minilm.open_model()
    asked, text = model.tokenize(QUERY), model.tokenize(TEXTS[1])
    question = model.token_vectors(asked).astype(np.float64)
    tokens = model.token_vectors(text)[1:-1].astype(np.float64)
    question /= np.linalg.norm(question, axis=1, keepdims=True)
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    (part,) = reranker.compare(QUERY, candidates_of([TEXTS[1]]))
    exact = (question @ tokens.T).max(axis=1)
    (best,) = TokenMatcher(cached_windows=0).best_cosines(QUERY, [TEXTS[1]])
    assert best == pytest.approx(exact, abs=1e-3)
    assert part.best == pytest.approx(exact, abs=0.1) and part.best.mean() == pytest.approx(exact.mean(), abs=0.03)
    assert list(part.held[1:-1]) == [token in text for token in asked] and not part.held[[0, -1]].any()
    one, other = LocalEmbedder(threads=1).embed([QUERY, TEXTS[1]])
    assert part.cosine == pytest.approx(float(np.dot(one, other)), abs=5e-3)


def test_the_sum_done_by_hand() -> None:
    first = Parts(np.asarray([0.9, 0.8, 0.4, 0.7]), np.asarray([False, True, False, False]), 0.5)
    second = Parts(np.asarray([0.6, 0.2, 1.0, 0.5]), np.asarray([False, True, True, False]), 0.3)
    rare, common = math.sqrt(math.log(1 + 1.5 / 1.5)), math.sqrt(0.5)  # one of two holds it; both: 0.18, so 0.5
    total = 2 + rare + common
    wanted = [
        ((0.9 + 0.8 * common + 0.4 * rare + 0.7) / total + 0.3 * 0.5 + 0.1 * 0.25) / 1.4,
        ((0.6 + 0.2 * common + 1.0 * rare + 0.5) / total + 0.3 * 0.3 + 0.1 * 1.0) / 1.4,
    ]
    assert combine([first, second], [2.0, 8.0]) == pytest.approx(wanted, abs=1e-6)
    assert combine([], []) == []


def test_the_lexical_score_counts_by_its_share_of_the_best(reranker: LateInteraction) -> None:
    plain = reranker.score_candidates(QUERY, candidates_of(TEXTS))
    scored = reranker.score_candidates(QUERY, candidates_of(TEXTS, lexical=[0.0, 10.0, 5.0, 2.5]))
    assert [new - old for new, old in zip(scored, plain, strict=True)] == pytest.approx(
        [0.0, 0.1 / 1.4, 0.05 / 1.4, 0.025 / 1.4], abs=2e-6
    )


def test_equal_input_gives_equal_scores_whatever_the_threads_and_the_cache(reranker: LateInteraction) -> None:
    texts = [*TEXTS, TEXTS[1], "word " * 700]
    scores = reranker.score_candidates(QUERY, candidates_of(texts))
    assert scores == reranker.score_candidates(QUERY, candidates_of(texts))
    assert scores == LateInteraction(threads=1, cached_texts=0).score_candidates(QUERY, candidates_of(texts))
    assert scores[1] == scores[4]


def test_those_behind_the_depth_keep_their_order_and_are_not_read() -> None:
    shallow = LateInteraction(depth=2, threads=1)
    ranked = rerank(QUERY, candidates_of(TEXTS), shallow)
    assert [item.doc_id for item in ranked] == ["d1", "d0", "d2", "d3"]
    assert ranked[1].score - ranked[2].score == pytest.approx(BEHIND)
    assert list(shallow._cache) == TEXTS[:2]


def test_a_long_text_is_read_to_its_end(reranker: LateInteraction) -> None:
    padding = "The canteen opens at noon and serves soup. " * 80
    without, with_end = reranker.compare(QUERY, candidates_of([padding, padding + TEXTS[1]]))
    assert with_end.best.mean() > without.best.mean() + 0.1


def test_vectors_of_the_same_window_are_computed_once() -> None:
    cached = TokenMatcher(threads=1, cached_windows=3)
    first = cached.best_cosines(QUERY, [TEXTS[0], TEXTS[0], TEXTS[1]])
    assert np.array_equal(first[0], first[1])
    cached.best_cosines("Another question?", [TEXTS[1]])
    assert cached._token_vectors.cache_info().misses == 2
    cached.best_cosines(QUERY, TEXTS)
    assert cached._token_vectors.cache_info().currsize == 3
    assert cached.best_cosines(QUERY, []) == []


def test_the_texts_read_last_are_kept() -> None:
    cached = LateInteraction(threads=1, cached_texts=3)
    cached.score_candidates(QUERY, candidates_of(TEXTS))
    cached.score_candidates(QUERY, candidates_of([TEXTS[1], TEXTS[0]]))
    assert list(cached._cache) == [TEXTS[3], TEXTS[1], TEXTS[0]]


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


@pytest.mark.parametrize("options", [{"depth": 0}, {"threads": 0}, {"cached_texts": -1}, {"depth": True}])
def test_wrong_options_are_refused_by_name_of_late_interaction(options: dict[str, Any]) -> None:
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
