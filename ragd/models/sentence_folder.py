"""What a folder of the sentence-transformers form says of its model; what it does not say is refused, never guessed.

Read are modules.json, sentence_bert_config.json, config_sentence_transformers.json, the configuration and weights of
each module, config.json and tokenizer_config.json for the window, and the Matryoshka dimensions that one of the
configurations or the training log in the model card states.

The steps after the graph of a sentence-transformers folder: pooling, dense layers, normalization, in float64.

Formulas and names are those of sentence_transformers' modules Pooling, Dense and Normalize.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ragd.models.graph_folder import GRAPH_PLACES, GraphFolder, external_data
from ragd.models.prompts import PROMPT_PRESETS, Prompts, suggest_preset

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


MODULES_FILE = "modules.json"
MODEL_FILE = "config_sentence_transformers.json"
WINDOW_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
CONFIG_FILE, TOKENIZER_CONFIG_FILE, CARD_FILE = "config.json", "tokenizer_config.json", "README.md"
WEIGHTS_FILE = "model.safetensors"
WINDOW_MIN, UNLIMITED = 8, 1_000_000  # a tokenizer without a limit states 10^30
PASSAGE_NAMES = ("document", "passage", "corpus")
MATRYOSHKA_KEYS = ("matryoshka_dims", "matryoshka_dimensions")
CARD_DIMS = re.compile(r'"matryoshka_dims":\s*\[([\d,\s]+)\]')
EXPORT = "`optimum-cli export onnx --library transformers --task feature-extraction --model MODEL FOLDER/onnx`"


@dataclass(frozen=True, slots=True)
class SentenceFolder:
    """window: tokens read at once, prompt and special tokens included. pooling: () where the graph pools by itself.

    skips_prompt: the prompt's tokens are left out of the pooling. native_dims: before truncation; default_dims: what
    the folder truncates to. matryoshka_dims: ascending, what may be truncated to; () when it says nothing of them.
    files: all that decide the vectors.
    """

    window: int
    lower_case: bool
    prompts: Prompts
    pooling: tuple[str, ...]
    skips_prompt: bool
    steps: tuple[Dense | Normalize, ...]
    native_dims: int
    default_dims: int
    matryoshka_dims: tuple[int, ...]
    files: tuple[Path, ...]


class FolderReader:
    """One reading of a folder. `read` raises the refusal of `files`, which says what to add."""

    def __init__(self, files: GraphFolder) -> None:
        self.files = files
        self.folder = files.folder
        self.used: list[Path] = []

    def read(self) -> SentenceFolder:
        modules = self._read_modules()
        if not any((self.folder / place).is_file() for place in GRAPH_PLACES) and self.files.path.suffix != ".onnx":
            raise self.files.refuse(f"has no {' or '.join(GRAPH_PLACES)}; export the model to ONNX with {EXPORT}")
        graph, tokenizer = self.files.find()
        self.used += [graph, tokenizer, *external_data(graph)]
        transformer = self.read_window_file()
        model = self.read_object(self.folder / MODEL_FILE)
        config = self.read_object(self.folder / CONFIG_FILE)
        pooling, width, skips_prompt = self._read_pooling(modules)
        steps = tuple(self._read_step(path, kind) for path, kind in modules[2:])
        dims = width
        for step in steps:
            dims = self._dims_after(step, dims)
        self._check_similarity(model, steps)
        stated, truncated = self._read_matryoshka(model, config, dims)
        return SentenceFolder(
            window=self.read_window(transformer, config),
            lower_case=bool(transformer.get("do_lower_case")),
            prompts=self._read_prompts(model, config),
            pooling=pooling,
            skips_prompt=skips_prompt,
            steps=steps,
            native_dims=dims,
            default_dims=truncated,
            matryoshka_dims=stated,
            files=tuple(dict.fromkeys(self.used)),
        )

    def _read_modules(self) -> list[tuple[Path, str]]:
        """Folder and kind of each module, in order: Transformer, Pooling, then Dense and Normalize as they come."""
        path = self.folder / MODULES_FILE
        if not path.is_file():
            raise self.files.refuse(
                f"has no {MODULES_FILE}; expected the folder of a sentence-transformers model: save it with "
                "`SentenceTransformer(MODEL).save_pretrained(FOLDER)`"
            )
        listed = self.read_json(path, list)
        modules = []
        for item in listed:
            named = str(item.get("type", "")) if isinstance(item, Mapping) else ""
            if not named.startswith("sentence_transformers."):
                raise self.files.refuse(
                    f"has a module of the type {named!r} in {MODULES_FILE}, which is code of the model's own; expected "
                    "modules of sentence_transformers: take a model without code of its own"
                )
            place = Path(str(item.get("path", "")))
            if place.is_absolute() or ".." in place.parts:
                raise self.files.refuse(f"has a module outside the folder in {MODULES_FILE}: {str(place)!r}")
            kind = named.rsplit(".", 1)[-1]
            if kind != "Dropout":  # without effect outside training
                modules.append((self.folder / place, kind))
        kinds = [kind for _, kind in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Dense", "Normalize"}:
            raise self.files.refuse(
                f"has the modules {', '.join(kinds) or 'none'} in {MODULES_FILE}; expected Transformer, Pooling, then "
                "Dense or Normalize: add the module that lacks, or take another model"
            )
        return modules

    def _read_pooling(self, modules: list[tuple[Path, str]]) -> tuple[tuple[str, ...], int, bool]:
        """The modes, the dimensions that they make together, and whether the prompt is left out."""
        path = modules[1][0] / CONFIG_FILE
        config = self._require(path, "word_embedding_dimension and pooling_mode_mean_tokens, or another pooling_mode")
        width = config.get("word_embedding_dimension", config.get("embedding_dimension"))
        named = config.get("pooling_mode")
        modes = tuple([named] if isinstance(named, str) else named or [])
        if not modes:
            modes = tuple(mode for flag, mode in POOLING_FLAGS.items() if config.get(flag))
        if not modes or not set(modes) <= set(POOLINGS):
            raise self.files.refuse(
                f"has the pooling {', '.join(map(str, modes)) or 'none'} in {self._show(path)}; expected one of "
                f"{', '.join(POOLINGS)}: set pooling_mode_mean_tokens, or what the model was trained with, to true"
            )
        if not isinstance(width, int) or width < 1:
            raise self.files.refuse(
                f"has no word_embedding_dimension in {self._show(path)}; add the number that the graph gives per token"
            )
        return modes, width * len(modes), not config.get("include_prompt", True)

    def _read_step(self, path: Path, kind: str) -> Dense | Normalize:
        keys = ("module_input_name", "module_output_name")
        config = self.read_object(path / CONFIG_FILE)
        if odd := [key for key in keys if config.get(key) not in (None, "sentence_embedding")]:
            raise self.files.refuse(
                f"has {odd[0]} {config[odd[0]]!r} in {self._show(path / CONFIG_FILE)}; expected sentence_embedding: "
                "take a model that makes one vector per text"
            )
        return Normalize() if kind == "Normalize" else self._read_dense(path)

    def _read_dense(self, path: Path) -> Dense:
        config = self._require(path / CONFIG_FILE, "in_features, out_features and activation_function")
        activation = str(config.get("activation_function", ""))
        if activation not in ACTIVATIONS:
            raise self.files.refuse(
                f"has the activation_function {activation!r} in {self._show(path / CONFIG_FILE)}; expected one of "
                f"{', '.join(ACTIVATIONS)}"
            )
        weights = path / WEIGHTS_FILE
        if not weights.is_file():
            raise self.files.refuse(
                f"has no {self._show(weights)}; expected the weights of the dense layer as safetensors (a "
                "pytorch_model.bin is not opened, it may run code): write them with "
                "`SentenceTransformer(FOLDER).save_pretrained(FOLDER)`"
            )
        self.used.append(weights)
        try:
            tensors = read_tensors(weights)
            weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
            if weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
                raise ValueError(f"the weight is of the shape {weight.shape}")
            if (bias is None) == bool(config.get("bias", True)):
                raise KeyError("linear.bias")
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise self.files.refuse(
                f"has a {self._show(weights)} that cannot be read ({error}); save it again"
            ) from error
        return Dense(weight, bias, activation, bool(config.get("use_residual")), tensors.get("residual.weight"))

    def _dims_after(self, step: Dense | Normalize, dims: int) -> int:
        if isinstance(step, Normalize):
            return dims
        if step.weight.shape[1] != dims:
            raise self.files.refuse(
                f"has a dense layer for {step.weight.shape[1]} dimensions where {dims} come in; copy the folder again"
            )
        return int(step.weight.shape[0])

    def read_window_file(self, task: str = "feature-extraction") -> Mapping[str, Any]:
        """sentence_bert_config.json or what older versions called it; {} without one."""
        path = next((self.folder / name for name in WINDOW_FILES if (self.folder / name).is_file()), None)
        config = self.read_object(path) if path else {}
        stated = config.get("transformer_task", task)
        if stated != task:
            raise self.files.refuse(f"is for the task {stated!r} by {path and path.name}; expected {task}")
        return config

    def read_window(self, transformer: Mapping[str, Any], config: Mapping[str, Any]) -> int:
        """What sentence_bert_config.json states, else tokenizer_config.json; never more than the model has positions.

        RoBERTa counts two positions that no token has.
        """
        stated = transformer.get("max_seq_length")
        if stated is None:
            limit = self.read_object(self.folder / TOKENIZER_CONFIG_FILE).get("model_max_length")
            stated = limit if isinstance(limit, int | float) and limit < UNLIMITED else None
        positions = config.get("max_position_embeddings")
        if isinstance(positions, int) and positions > 0:
            positions -= 2 if "roberta" in str(config.get("model_type", "")) else 0
            stated = positions if stated is None else min(stated, positions)
        if not isinstance(stated, int | float) or stated < WINDOW_MIN:
            raise self.files.refuse(
                f"says no window ({stated!r}); add max_seq_length, how many tokens the model reads at once (at least "
                f"{WINDOW_MIN}), to {WINDOW_FILES[0]}"
            )
        return int(stated)

    def _read_prompts(self, model: Mapping[str, Any], config: Mapping[str, Any]) -> Prompts:
        """By name as `encode_query` and `encode_document` look them up; else the default prompt; else none."""
        prompts = model.get("prompts") or {}
        default = model.get("default_prompt_name")
        advice = f'name them in {MODEL_FILE}: "prompts": {{"query": "...", "document": "..."}}, "" for none'
        if not isinstance(prompts, Mapping) or not all(isinstance(prompt, str) for prompt in prompts.values()):
            raise self.files.refuse(f"has prompts that are not texts by name; {advice}")
        if default is not None and default not in prompts:
            raise self.files.refuse(f"names the default prompt {default!r}, which is not among its prompts; {advice}")
        spoken = prompts.keys() & {"query", *PASSAGE_NAMES}
        if any(prompts.values()) and not spoken and default is None:
            raise self.files.refuse(
                f"has prompts for {', '.join(sorted(prompts))}, and none for queries and documents; {advice}"
            )
        if not prompts:
            self._check_family(config, advice)
        otherwise = prompts.get(default, "")
        return Prompts(
            query=prompts.get("query", otherwise),
            passage=next((prompts[name] for name in PASSAGE_NAMES if name in prompts), otherwise),
        )

    def _check_family(self, config: Mapping[str, Any], advice: str) -> None:
        """A model that is known to want prompts, in a folder that says nothing of them."""
        named = f"{self.files.name} {config.get('_name_or_path', '')}"
        preset = suggest_preset(named)
        if preset and PROMPT_PRESETS[preset].prompts:
            known = PROMPT_PRESETS[preset]
            raise self.files.refuse(
                f"says no prompts, and its name is that of a model that wants some ({known.source}: query "
                f"{known.prompts.query!r}, document {known.prompts.passage!r}); {advice}"
            )

    def _check_similarity(self, model: Mapping[str, Any], steps: tuple[Dense | Normalize, ...]) -> None:
        """Vectors are compared by cosine, which ranks unit vectors as their dot product and distance do."""
        similarity = model.get("similarity_fn_name") or "cosine"
        is_unit = any(isinstance(step, Normalize) for step in steps[-1:])
        if similarity != "cosine" and not (is_unit and similarity in ("dot", "euclidean")):
            raise self.files.refuse(
                f"compares by {similarity!r} (similarity_fn_name in {MODEL_FILE}) vectors that it does not normalize; "
                "expected cosine: take a model that is compared by cosine"
            )

    def _read_matryoshka(
        self, model: Mapping[str, Any], config: Mapping[str, Any], dims: int
    ) -> tuple[tuple[int, ...], int]:
        """What may be truncated to, and what is where a collection states nothing."""
        stated: set[int] = set()
        for source in (model, config):
            for key in MATRYOSHKA_KEYS:
                listed = source.get(key) or []
                if not isinstance(listed, list) or not all(isinstance(item, int) and item > 0 for item in listed):
                    raise self.files.refuse(f"has a {key} that is no list of whole numbers: {listed!r}")
                stated |= set(listed)
        card = self.folder / CARD_FILE
        if card.is_file():
            found = CARD_DIMS.search(card.read_text(encoding="utf-8", errors="replace"))
            stated |= {int(item) for item in found[1].split(",") if item.strip()} if found else set()
        truncated = model.get("truncate_dim") or dims
        if not isinstance(truncated, int) or not 0 < truncated <= dims:
            raise self.files.refuse(f"has truncate_dim {truncated!r} in {MODEL_FILE}; expected 1 to {dims}")
        if truncated != dims:
            stated.add(truncated)
        return tuple(sorted(size for size in stated if size < dims)), truncated

    def _require(self, path: Path, wanted: str) -> Mapping[str, Any]:
        if not path.is_file():
            raise self.files.refuse(f"has no {self._show(path)}; add it from the model, with {wanted}")
        return self.read_object(path)

    def read_object(self, path: Path) -> Mapping[str, Any]:
        """A JSON object; {} for a file that is not there."""
        if not path.is_file():
            return {}
        self.used.append(path)
        config: Mapping[str, Any] = self.read_json(path, dict)
        return config

    def read_json(self, path: Path, kind: type) -> Any:
        self.used.append(path)
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise self.files.refuse(f"has a {self._show(path)} that is no JSON ({error}); copy it again") from error
        if not isinstance(value, kind):
            raise self.files.refuse(f"has a {self._show(path)} that is no JSON {kind.__name__}; copy it again")
        return value

    def _show(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()
