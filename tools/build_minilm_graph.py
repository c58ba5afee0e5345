"""Writes ragd/data/minilm.onnx: the graph of all-MiniLM-L6-v2 without its weights.

    python -m tools.build_minilm_graph

Every weight is an external initializer that carries the name it has in the model's safetensors file;
`ragd.models.minilm`
supplies them when it opens a session. A run takes one text, or four one behind the other: what is done token by token
is done for all at once, attention is computed for each text alone. So there is no padding and no mask, and the other
texts of a run change no bit of a text's result.

    ids      int64 [n]             word pieces, [CLS] and [SEP] included
    places   int64 [n]             0, 1, 2, ... from each text's first
    lengths  int64 [texts]         tokens of each text, at least 1 each; one text or four
    means    float32 [texts, 384]  mean over each text's tokens, not normalised
    tokens   float32 [n, 384]      the token embeddings

The layers are those of BERT (Devlin et al., 2018): post-layer-norm, learned positions, exact GELU. Standard ONNX
operators only: the fused ones of ONNX Runtime were not faster. Needs the development requirements.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TARGET = Path(__file__).resolve().parent.parent / "ragd" / "data" / "minilm.onnx"
HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 12, 6
TEXTS = 4  # in a run of several
VOCABULARY, POSITIONS, TYPES = 30522, 512, 2
EPSILON = 1e-12
OPSET, IR_VERSION = 20, 10


class Graph:
    """Collects nodes, weights and constants in the order in which they are first used, so that the bytes are stable."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.constants: list[onnx.TensorProto] = []
        self._made = 0

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: object) -> str:
        """One node; returns the name of its output."""
        [name] = self.add_many(operator, *inputs, outs=[out or f"{operator.lower()}_{self._made}"], **attributes)
        return name

    def add_many(self, operator: str, *inputs: str, outs: list[str], **attributes: object) -> list[str]:
        self.nodes.append(helper.make_node(operator, list(inputs), outs, name=f"{outs[0]}_node", **attributes))
        self._made += 1
        return outs

    def either(self, condition: str, first: Callable[[], str], second: Callable[[], str], out: str = "") -> str:
        """What `first` adds where the condition holds, else what `second` adds: float32 [any, 384] both."""
        branches = []
        for title, fill in (("then", first), ("else", second)):
            outer, self.nodes = self.nodes, []
            result = helper.make_tensor_value_info(fill(), TensorProto.FLOAT, [None, HIDDEN])
            branches.append(helper.make_graph(self.nodes, f"{title}_{self._made}", [], [result]))
            self.nodes = outer
        return self.add("If", condition, out=out, then_branch=branches[0], else_branch=branches[1])

    def split(self, x: str) -> list[str]:
        """The rows of each of the four texts."""
        return self.add_many("Split", x, "lengths", outs=[f"{x}_{self._made}_{text}" for text in range(TEXTS)], axis=0)

    def weight(self, name: str, *shape: int) -> str:
        """A tensor that stays in the safetensors file."""
        if name not in self.weights:
            tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="model.safetensors")
            self.weights[name] = tensor
        return name

    def constant(self, name: str, value: object, kind: type[np.generic]) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def linear(self, x: str, name: str, outputs: int, inputs: int) -> str:
        weight, bias = self.weight(f"{name}.weight", outputs, inputs), self.weight(f"{name}.bias", outputs)
        return self.add("Gemm", x, weight, bias, transB=1)

    def norm(self, x: str, name: str, out: str = "") -> str:
        weight, bias = self.weight(f"{name}.weight", HIDDEN), self.weight(f"{name}.bias", HIDDEN)
        return self.add("LayerNormalization", x, weight, bias, out=out, axis=-1, epsilon=EPSILON)


def embed_tokens(graph: Graph) -> str:
    """Word, position and type embeddings, added and normalised: [n, 384]."""
    words = graph.add("Gather", graph.weight("embeddings.word_embeddings.weight", VOCABULARY, HIDDEN), "ids")
    positions = graph.weight("embeddings.position_embeddings.weight", POSITIONS, HIDDEN)
    types = graph.weight("embeddings.token_type_embeddings.weight", TYPES, HIDDEN)
    placed = graph.add("Gather", positions, "places")
    first_type = graph.add("Slice", types, "first", "second", "first")
    return graph.norm(graph.add("Add", graph.add("Add", words, placed), first_type), "embeddings.LayerNorm")


def attend(graph: Graph, x: str, layer: str) -> str:
    """Self-attention of 12 heads, over each text by itself: [n, 384]."""
    parts = [graph.linear(x, f"{layer}.attention.self.{part}", HIDDEN, HIDDEN) for part in ("query", "key", "value")]

    def apart() -> str:
        rows = zip(*map(graph.split, parts), strict=True)
        return graph.add("Concat", *(mix_heads(graph, *of_text) for of_text in rows), axis=0)

    mixed = graph.either("is_one", lambda: mix_heads(graph, *parts), apart)
    return graph.linear(mixed, f"{layer}.attention.output.dense", HIDDEN, HIDDEN)


def mix_heads(graph: Graph, query: str, key: str, value: str) -> str:
    """The values of one text's tokens, mixed by softmax(query key^T / sqrt(32)) in each head: [n, 384]."""
    query, key, value = (graph.add("Reshape", part, "by_head") for part in (query, key, value))
    scores = graph.add(
        "MatMul", graph.add("Transpose", query, perm=[1, 0, 2]), graph.add("Transpose", key, perm=[1, 2, 0])
    )
    weights = graph.add("Softmax", graph.add("Mul", scores, "scale"), axis=-1)
    mixed = graph.add("MatMul", weights, graph.add("Transpose", value, perm=[1, 0, 2]))
    return graph.add("Reshape", graph.add("Transpose", mixed, perm=[1, 0, 2]), "flat")


def average(graph: Graph, x: str) -> None:
    """The mean over each text's rows: [texts, 384]."""

    def mean(rows: str) -> str:
        return graph.add("ReduceMean", rows, "first", keepdims=1)

    graph.either(
        "is_one", lambda: mean(x), lambda: graph.add("Concat", *map(mean, graph.split(x)), axis=0), out="means"
    )


def build_graph() -> onnx.ModelProto:
    """The whole model. The same call gives the same bytes with the same version of onnx."""
    graph = Graph()
    graph.constant("by_head", [-1, HEADS, HIDDEN // HEADS], np.int64)
    graph.constant("flat", [-1, HIDDEN], np.int64)
    graph.constant("first", [0], np.int64)
    graph.constant("second", [1], np.int64)
    graph.constant("scale", (HIDDEN // HEADS) ** -0.5, np.float32)
    graph.add("Equal", graph.add("Shape", "lengths"), "second", out="is_one")
    x = embed_tokens(graph)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        x = graph.norm(graph.add("Add", attend(graph, x, layer), x), f"{layer}.attention.output.LayerNorm")
        inner = graph.add("Gelu", graph.linear(x, f"{layer}.intermediate.dense", INNER, HIDDEN))
        outer = graph.linear(inner, f"{layer}.output.dense", HIDDEN, INNER)
        last = "tokens" if number == LAYERS - 1 else ""
        x = graph.norm(graph.add("Add", outer, x), f"{layer}.output.LayerNorm", out=last)
    average(graph, x)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [
                helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]),
                helper.make_tensor_value_info("places", TensorProto.INT64, ["n"]),
                helper.make_tensor_value_info("lengths", TensorProto.INT64, ["texts"]),
            ],
            [
                helper.make_tensor_value_info("means", TensorProto.FLOAT, ["texts", HIDDEN]),
                helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", HIDDEN]),
            ],
            initializer=[*graph.constants, *graph.weights.values()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="ragd",
    )


def main() -> None:
    TARGET.parent.mkdir(exist_ok=True)
    content = build_graph().SerializeToString(deterministic=True)
    TARGET.write_bytes(content)
    print(f"{TARGET.relative_to(Path.cwd()) if TARGET.is_relative_to(Path.cwd()) else TARGET}: {len(content)} bytes")


if __name__ == "__main__":
    main()
