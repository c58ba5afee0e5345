"""Writes ragd/data/minilm.onnx: the graph of all-MiniLM-L6-v2 without its weights.

    python -m tools.build_minilm_graph

Every weight is an external initializer that carries the name it has in the model's safetensors file; `ragd.minilm`
supplies them when it opens a session. One text per run, so there is no batch axis, no padding and no mask:

    ids     int64 [n]         word pieces, [CLS] and [SEP] included
    mean    float32 [384]     mean over the tokens, not normalised
    tokens  float32 [n, 384]  the token embeddings

The layers are those of BERT (Devlin et al., 2018): post-layer-norm, learned positions, exact GELU. Standard ONNX
operators only: the fused ones of ONNX Runtime were not faster (docs/embedding.md). Needs the development requirements.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TARGET = Path(__file__).resolve().parent.parent / "ragd" / "data" / "minilm.onnx"
HIDDEN, INNER, HEADS, LAYERS = 384, 1536, 12, 6
VOCABULARY, POSITIONS, TYPES = 30522, 512, 2
EPSILON = 1e-12
OPSET, IR_VERSION = 20, 10


class Graph:
    """Collects nodes, weights and constants in the order in which they are first used, so that the bytes are stable."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str, out: str = "", **attributes: object) -> str:
        """One node; returns the name of its output."""
        name = out or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"{name}_node", **attributes))
        return name

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
    length = graph.add("Shape", "ids")
    words = graph.add("Gather", graph.weight("embeddings.word_embeddings.weight", VOCABULARY, HIDDEN), "ids")
    positions = graph.weight("embeddings.position_embeddings.weight", POSITIONS, HIDDEN)
    types = graph.weight("embeddings.token_type_embeddings.weight", TYPES, HIDDEN)
    placed = graph.add("Slice", positions, "first", length, "first")
    first_type = graph.add("Slice", types, "first", "second", "first")
    return graph.norm(graph.add("Add", graph.add("Add", words, placed), first_type), "embeddings.LayerNorm")


def attend(graph: Graph, x: str, layer: str) -> str:
    """Self-attention of 12 heads over the whole text: [n, 384]."""
    query, key, value = (
        graph.add("Reshape", graph.linear(x, f"{layer}.attention.self.{part}", HIDDEN, HIDDEN), "by_head")
        for part in ("query", "key", "value")
    )
    scores = graph.add(
        "MatMul", graph.add("Transpose", query, perm=[1, 0, 2]), graph.add("Transpose", key, perm=[1, 2, 0])
    )
    weights = graph.add("Softmax", graph.add("Mul", scores, "scale"), axis=-1)
    mixed = graph.add("MatMul", weights, graph.add("Transpose", value, perm=[1, 0, 2]))
    flat = graph.add("Reshape", graph.add("Transpose", mixed, perm=[1, 0, 2]), "flat")
    return graph.linear(flat, f"{layer}.attention.output.dense", HIDDEN, HIDDEN)


def build_graph() -> onnx.ModelProto:
    """The whole model. The same call gives the same bytes with the same version of onnx."""
    graph = Graph()
    graph.constant("by_head", [-1, HEADS, HIDDEN // HEADS], np.int64)
    graph.constant("flat", [-1, HIDDEN], np.int64)
    graph.constant("first", [0], np.int64)
    graph.constant("second", [1], np.int64)
    graph.constant("scale", (HIDDEN // HEADS) ** -0.5, np.float32)
    x = embed_tokens(graph)
    for number in range(LAYERS):
        layer = f"encoder.layer.{number}"
        x = graph.norm(graph.add("Add", attend(graph, x, layer), x), f"{layer}.attention.output.LayerNorm")
        inner = graph.add("Gelu", graph.linear(x, f"{layer}.intermediate.dense", INNER, HIDDEN))
        outer = graph.linear(inner, f"{layer}.output.dense", HIDDEN, INNER)
        last = "tokens" if number == LAYERS - 1 else ""
        x = graph.norm(graph.add("Add", outer, x), f"{layer}.output.LayerNorm", out=last)
    graph.add("ReduceMean", x, "first", out="mean", keepdims=0)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
            [
                helper.make_tensor_value_info("mean", TensorProto.FLOAT, [HIDDEN]),
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
