"""The weight-free graph: its bytes come from the script, and it names nothing that the safetensors file lacks."""

from __future__ import annotations

import onnx

from ragd.models import minilm
from tools.build_minilm_graph import build_graph


def test_the_script_writes_the_file_in_the_repository() -> None:
    assert onnx.load(minilm.GRAPH_FILE, load_external_data=False) == build_graph()


def test_the_graph_is_valid_and_carries_no_weights() -> None:
    assert minilm.GRAPH_FILE.stat().st_size < 60_000
    model = onnx.load(minilm.GRAPH_FILE, load_external_data=False)
    inline = [tensor for tensor in model.graph.initializer if tensor.data_location != onnx.TensorProto.EXTERNAL]
    assert sum(len(tensor.raw_data) for tensor in inline) < 100
    assert {node.domain for node in model.graph.node} == {""}


def test_every_weight_of_the_graph_is_in_the_file_with_its_shape_and_none_is_left_over() -> None:
    model = onnx.load(minilm.GRAPH_FILE, load_external_data=False)
    wanted = {
        tensor.name: tuple(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    weights, _ = minilm.map_weights(minilm.locate_model() / minilm.WEIGHTS_FILE)
    assert wanted == {name: weight.shape for name, weight in weights.items()}
