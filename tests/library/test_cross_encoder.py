"""A cross-encoder from a folder: a graph of a few nodes, made here, that sums up weights of the text's words."""

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

from ragd.errors import InvalidInput, RerankerError
from ragd.models.reranking import CrossEncoder, rerank
from ragd.types import Candidate

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
