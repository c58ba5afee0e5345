"""Model folders of a few kilobytes with random weights, and what they compute in NumPy: tests and benchmarks use them.

The graph is one layer: x = words[ids] + places[0...], last_hidden_state = tanh(x · own + mean(x) · all).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":", "passage", "sea", "red", "house", "oak", "wave", "the", "a"]
WORDS += ["of", "storm", "lamp", "iron", "glass", "river", "stone", "bird", "light"]
WIDTH = 8
WINDOW = 16
POSITIONS = 64
FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}


def weights_of(seed: int = 7) -> dict[str, Any]:
    chance = np.random.default_rng(seed)
    shapes = {"words": (len(WORDS), WIDTH), "places": (POSITIONS, WIDTH), "own": (WIDTH, WIDTH), "all": (WIDTH, WIDTH)}
    shapes |= {"vocabulary": (WIDTH, len(WORDS))}
    return {name: chance.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def write_tokenizer(folder: Path, *, padding: str = "right", lower: bool = True) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_padding(length=32, direction=padding, pad_id=0, pad_token="[PAD]")
    tokenizer.enable_truncation(9)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    write_json(
        folder / "tokenizer_config.json",
        special
        | {
            "tokenizer_class": "PreTrainedTokenizerFast", "padding_side": padding, "model_max_length": 10**30,
            "model_input_names": ["input_ids", "attention_mask"],
        },
    )  # fmt: skip


def write_graph(
    path: Path,
    *,
    outputs: Sequence[str] = ("last_hidden_state",),
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    seed: int = 7,
    external: bool = False,
) -> None:
    """outputs: "last_hidden_state" or "token_embeddings" per token, "sentence_embedding" their mean, "logits" over the
    vocabulary, anything else as the tokens under that name."""
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last_axis"], ["weight"]),
    ]
    if "position_ids" in inputs:
        nodes.append(helper.make_node("Identity", ["position_ids"], ["position"]))
    else:
        nodes += [
            helper.make_node("CumSum", ["attention_mask", "axis_one"], ["count"]),
            helper.make_node("Sub", ["count", "one"], ["unbounded"]),
            helper.make_node("Max", ["unbounded", "zero"], ["position"]),
        ]
    nodes += [
        helper.make_node("Gather", ["places", "position"], ["place"]),
        helper.make_node("Add", ["word", "place"], ["sum"]),
        helper.make_node("Mul", ["sum", "weight"], ["x"]),
        helper.make_node("ReduceSum", ["x", "axis"], ["total"], keepdims=1),
        helper.make_node("ReduceSum", ["weight", "axis"], ["length"], keepdims=1),
        helper.make_node("Div", ["total", "length"], ["mean"]),
        helper.make_node("MatMul", ["x", "own"], ["from_own"]),
        helper.make_node("MatMul", ["mean", "all"], ["from_all"]),
        helper.make_node("Add", ["from_own", "from_all"], ["mixed"]),
        helper.make_node("Tanh", ["mixed"], ["hidden"]),
    ]
    if "token_type_ids" in inputs:
        nodes.append(helper.make_node("Identity", ["token_type_ids"], ["types"]))
    infos = []
    for name in outputs:
        shape: list[Any] = ["batch", "length", WIDTH]
        if name == "sentence_embedding":
            nodes += [
                helper.make_node("Mul", ["hidden", "weight"], ["kept"]),
                helper.make_node("ReduceSum", ["kept", "axis"], ["kept_total"], keepdims=0),
                helper.make_node("Squeeze", ["length", "axis"], ["flat_length"]),
                helper.make_node("Div", ["kept_total", "flat_length"], [name]),
            ]
            shape = ["batch", WIDTH]
        elif name == "logits":
            nodes.append(helper.make_node("MatMul", ["hidden", "vocabulary"], [name]))
            shape = ["batch", "length", len(WORDS)]
        else:
            nodes.append(helper.make_node("Identity", ["hidden"], [name]))
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    constants = [numpy_helper.from_array(value, name) for name, value in weights_of(seed).items()]
    constants += [
        numpy_helper.from_array(np.asarray(value, dtype=np.int64), name)
        for name, value in {"last_axis": [2], "axis": [1], "axis_one": 1, "one": 1, "zero": 0}.items()
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in inputs],
        infos,
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location=path.name + "_data", size_threshold=0)
    else:
        onnx.save(model, str(path))


def write_folder(
    folder: Path,
    *,
    pooling: Sequence[str] = ("mean",),
    include_prompt: bool = True,
    dense: Mapping[str, Any] | None = None,
    normalize: bool = True,
    model: Mapping[str, Any] | None = None,
    padding: str = "right",
    window: int | None = WINDOW,
    newer: bool = False,
    **graph: Any,
) -> Path:
    """model: what config_sentence_transformers.json holds, None for no such file. dense: {"out": 5, "activation": ...,
    "bias": ...}. newer: keys and module paths as version 6 writes them, else those of version 2. graph: for
    write_graph."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, padding=padding)
    write_graph(folder / "onnx" / "model.onnx", **graph)
    kinds = ["Transformer", "Pooling"] + ["Dense"] * bool(dense) + ["Normalize"] * normalize
    places = {"Transformer": "base.modules.transformer", "Pooling": "sentence_transformer.modules.pooling"}
    places |= {"Dense": "base.modules.dense", "Normalize": "base.modules.normalize"}
    modules = []
    for place, kind in enumerate(kinds):
        path = "" if kind == "Transformer" else f"{place}_{kind}"
        (folder / path).mkdir(exist_ok=True)
        within = places[kind] if newer else "models"
        modules.append(
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.{within}.{kind}"}
        )
    write_json(folder / "modules.json", modules)
    if newer:
        modes: Any = pooling[0] if len(pooling) == 1 else list(pooling)
        pooled: dict[str, Any] = {"embedding_dimension": WIDTH, "pooling_mode": modes}
        limits: dict[str, Any] = {"transformer_task": "feature-extraction"}
        if window is not None:
            state = json.loads((folder / "tokenizer_config.json").read_text())
            write_json(folder / "tokenizer_config.json", state | {"model_max_length": window})
    else:
        pooled = {"word_embedding_dimension": WIDTH} | {flag: mode in pooling for mode, flag in FLAGS.items()}
        limits = {"do_lower_case": False} | ({} if window is None else {"max_seq_length": window})
    write_json(folder / "1_Pooling" / "config.json", pooled | {"include_prompt": include_prompt})
    write_json(folder / "sentence_bert_config.json", limits)
    # a type that sentence-transformers can load with any graph
    write_json(folder / "config.json", {"model_type": "bert", "hidden_size": WIDTH, "vocab_size": len(WORDS)})
    if dense:
        write_dense(folder / "2_Dense", WIDTH * len(pooling), **dense)
    if model is not None:
        write_json(folder / "config_sentence_transformers.json", model)
    return folder


def write_dense(folder: Path, width: int, out: int, activation: str = "activation.Tanh", bias: bool = True) -> None:
    chance = np.random.default_rng(11)
    tensors = {"linear.weight": chance.normal(0, 0.5, (out, width)).astype(np.float32)}
    if bias:
        tensors["linear.bias"] = chance.normal(0, 0.5, out).astype(np.float32)
    write_safetensors(folder / "model.safetensors", tensors)
    named = f"torch.nn.modules.{activation}"
    write_json(
        folder / "config.json", {"in_features": width, "out_features": out, "bias": bias, "activation_function": named}
    )


def write_safetensors(path: Path, tensors: Mapping[str, Any]) -> None:
    """float32 arrays by name."""
    header, data = {}, b""
    for name, value in tensors.items():
        content = value.astype("<f4").tobytes()
        span = [len(data), len(data) + len(content)]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": span}
        data += content
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2), encoding="utf-8")


def token_ids(text: str) -> list[int]:
    """The words of a lower-case text without punctuation but ":", between [CLS] and [SEP]."""
    words = text.lower().replace(":", " : ").split()
    return [2, *(WORDS.index(word) if word in WORDS else 1 for word in words), 3]


def hidden(ids: Sequence[int], seed: int = 7) -> Any:
    """last_hidden_state of one text, float64 [tokens, WIDTH]."""
    weights = {name: value.astype(np.float64) for name, value in weights_of(seed).items()}
    x = weights["words"][list(ids)] + weights["places"][: len(ids)]
    return np.tanh(x @ weights["own"] + x.mean(axis=0) @ weights["all"])


def write_sparse_folder(
    folder: Path,
    *,
    strategy: str = "max",
    activation: str = "relu",
    form: str = "router",
    weights: Mapping[str, float] | None = None,
    window: int = WINDOW,
    **graph: Any,
) -> Path:
    """A SPLADE-doc encoder. form: "router" with safetensors, "router-json" with idf.json in it, "idf" without a router.

    weights: of a query's tokens, default 1 + the token's place in WORDS / 10.
    """
    query, document = folder / "query_0_SparseStaticEmbedding", folder / "document_0_MLMTransformer"
    pooling = folder / "document_1_SpladePooling"
    transformer = folder if form == "idf" else document
    for made in (query, pooling, transformer) if form != "idf" else (pooling, transformer):
        made.mkdir(parents=True, exist_ok=True)
    package = "sentence_transformers.sparse_encoder.models"
    kinds = {
        query.name: f"{package}.SparseStaticEmbedding",
        document.name: f"{package}.MLMTransformer",
        pooling.name: f"{package}.SpladePooling",
    }
    asked = weights if weights is not None else {word: 1 + place / 10 for place, word in enumerate(WORDS)}
    if form == "idf":
        listed = [("", kinds[document.name]), (pooling.name, kinds[pooling.name])]
        modules = [
            {"idx": place, "name": str(place), "path": path, "type": kind} for place, (path, kind) in enumerate(listed)
        ]
        write_json(folder / "idf.json", asked)
    else:
        modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}]
        structure = {"query": [query.name], "document": [document.name, pooling.name]}
        write_json(folder / "router_config.json", {"types": kinds, "structure": structure, "parameters": {}})
        write_tokenizer(query)
        write_json(query / "config.json", {"frozen": True} | ({"path": "idf.json"} if form == "router-json" else {}))
        if form == "router-json":
            write_json(query / "idf.json", asked)
        else:
            table = np.asarray([asked.get(word, 0.0) for word in WORDS], dtype=np.float32)
            write_safetensors(query / "model.safetensors", {"weight": table})
    write_json(folder / "modules.json", modules)
    state = {"pooling_strategy": strategy, "activation_function": activation, "word_embedding_dimension": len(WORDS)}
    write_json(pooling / "config.json", state)
    write_tokenizer(transformer)
    write_graph(transformer / "onnx" / "model.onnx", outputs=["logits"], **graph)
    write_json(transformer / "sentence_bert_config.json", {"max_seq_length": window, "do_lower_case": False})
    write_json(transformer / "config.json", {"model_type": "bert", "hidden_size": WIDTH, "vocab_size": len(WORDS)})
    return folder


def sparse_weights(text: str, strategy: str = "max", activation: str = "relu") -> Any:
    """What a sparse folder of `write_sparse_folder` makes of a text that fits its window, float64 [vocabulary]."""
    logits = hidden(token_ids(text)) @ weights_of()["vocabulary"].astype(np.float64)
    weights = np.log1p(np.maximum(logits, 0))
    if activation == "log1p_relu":
        weights = np.log1p(weights)
    return weights.max(axis=0) if strategy == "max" else weights.sum(axis=0)
