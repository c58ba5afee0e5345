"""The steps after the graph of a sentence-transformers folder: pooling, dense layers, normalization, in float64.

Formulas and names are those of sentence_transformers' modules Pooling, Dense and Normalize.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

POOLING_FLAGS = {  # in the order in which several are joined
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
POOLINGS = tuple(POOLING_FLAGS.values())
TENSOR_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}

_erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS: Mapping[str, Callable[[Numbers], Numbers]] = {
    "torch.nn.modules.linear.Identity": lambda x: x,
    "torch.nn.modules.activation.Tanh": np.tanh,
    "torch.nn.modules.activation.ReLU": lambda x: np.maximum(x, 0),
    "torch.nn.modules.activation.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "torch.nn.modules.activation.SiLU": lambda x: x / (1 + np.exp(-x)),
    "torch.nn.modules.activation.GELU": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
}


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """activation(weight · x + bias), plus x (or residual · x) where the layer has a residual connection."""

    weight: Numbers
    bias: Numbers | None
    activation: str
    is_residual: bool = False
    residual: Numbers | None = None

    def apply(self, vector: Numbers) -> Numbers:
        out = self.weight @ vector
        out = ACTIVATIONS[self.activation](out if self.bias is None else out + self.bias)
        if self.is_residual:
            out = out + (vector if self.residual is None else self.residual @ vector)
        return out


@dataclass(frozen=True, slots=True)
class Normalize:
    """The vector at length 1; the zero vector stays what it is."""

    def apply(self, vector: Numbers) -> Numbers:
        return vector / max(float(np.linalg.norm(vector)), 1e-12)


def pool(tokens: Numbers, modes: tuple[str, ...], skipped: int) -> Numbers:
    """One vector from the token vectors [tokens, width]: each mode's, joined in their order.

    skipped: how many tokens at the beginning, those of the prompt, are left out; the last token always stays. The
    weights of "weightedmean" are the tokens' places from 1, skipped ones counted.
    """
    kept = tokens[min(skipped, len(tokens) - 1) :]
    first = len(tokens) - len(kept) + 1
    return np.concatenate([_pool(kept, mode, first) for mode in modes])


def _pool(tokens: Numbers, mode: str, first: int) -> Numbers:
    result: Numbers
    match mode:
        case "cls":
            result = tokens[0]
        case "max":
            result = tokens.max(axis=0)
        case "mean":
            result = tokens.mean(axis=0)
        case "mean_sqrt_len_tokens":
            result = tokens.sum(axis=0) / math.sqrt(len(tokens))
        case "weightedmean":
            weights = np.arange(first, first + len(tokens), dtype=np.float64)
            result = weights @ tokens / weights.sum()
        case _:
            result = tokens[-1]
    return result


def read_tensors(path: Path) -> dict[str, Numbers]:
    """Every tensor of a safetensors file. ValueError for one of another type than float, or a damaged file.

    Format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, the data.
    """
    content = path.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    tensors = {}
    for name, tensor in json.loads(content[8:data]).items():
        if name == "__metadata__":
            continue
        first, last = (data + offset for offset in tensor["data_offsets"])
        if tensor["dtype"] == "BF16":  # the upper half of a 32-bit float
            flat = (np.frombuffer(content[first:last], "<u2").astype("<u4") << 16).view("<f4")
        elif tensor["dtype"] in TENSOR_TYPES:
            flat = np.frombuffer(content[first:last], TENSOR_TYPES[tensor["dtype"]])
        else:
            raise ValueError(f"the tensor {name} is of the type {tensor['dtype']}")
        tensors[name] = flat.reshape(tensor["shape"]).astype(np.float64)
    return tensors
