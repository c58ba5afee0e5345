"""An embedder from a folder of the sentence-transformers form: an ONNX graph, its tokenizer and its configuration.

A learned-sparse document encoder from a folder: a text becomes weighted terms, a query its tokens.

The model reads documents alone (SPLADE-doc; Lassance and Clinchant, 2022; "inference-free" in sentence-transformers and
OpenSearch): for each entry of its vocabulary the highest, or the sum, over all tokens of log(1 + relu(logit)), or the
logarithm of that once more. A query is only tokenized: each of its tokens counts what a table says, without a model.

Read are folders of sentence-transformers' SparseEncoder: a Router whose document side is Transformer (or
MLMTransformer) and SpladePooling and whose query side is SparseStaticEmbedding; or the two document modules with the
queries' weights in idf.json.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, cast

import numpy as np

from ragd import telemetry
from ragd.errors import DimensionMismatch, EmbedderError
from ragd.models.graph_folder import (
    GRAPH_PLACES,
    IDENTITY,
    TOKENIZER_FILE,
    FolderModel,
    GraphFolder,
    changed_folder,
    refuse_folder,
)
from ragd.models.prompts import Prompts
from ragd.models.sentence_folder import (
    CONFIG_FILE,
    MODULES_FILE,
    WEIGHTS_FILE,
    FolderReader,
    Numbers,
    pool,
    read_tensors,
)
from ragd.text.windows import LONE_SURROGATE, FloatArray, accept_texts, average_windows
from ragd.types import Vector

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer


TOKEN_OUTPUTS = ("last_hidden_state", "token_embeddings")
TEXT_OUTPUT = "sentence_embedding"


class FolderEmbedder(FolderModel):
    """path: a folder with modules.json, onnx/model.onnx (or model.onnx) and tokenizer.json.

    dims: entries per vector, None for what the folder states; fewer than the model gives only where the folder names
    that Matryoshka size. threads: windows computed side by side, each alone in a run on one thread, so a vector depends
    on its text alone; default: the cores that this process may use. Vectors are float32 of unit length. The graph is
    opened at the first call, once per process. Threads may share one.

    EmbedderError of kind "damaged_model" for a folder that lacks something, "changed_model" for one whose files are no
    longer those that it was made of; DimensionMismatch for other dims than the folder allows.
    """

    system = "ragd.local"
    server_address: str | None = None
    server_port: int | None = None

    def __init__(self, path: Path | str, *, dims: int | None = None, threads: int | None = None) -> None:
        files = GraphFolder(os.path.abspath(path), kind="embedding model", refusal=refuse_folder)
        self.spec = FolderReader(files).read()
        super().__init__(files, self.spec.files, lower_case=self.spec.lower_case, threads=threads)
        self.window: int | None = self.spec.window
        self.native_dims, self.matryoshka_dims = self.spec.native_dims, self.spec.matryoshka_dims
        self.prompts: Prompts = self.spec.prompts
        self.pooling = self.spec.pooling
        self.dims = self._check_dims(self.spec.default_dims if dims is None else dims)

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._embed(texts, self.prompts.passage)

    def embed_query(self, text: str) -> Vector:
        return self._embed([text], self.prompts.query)[0]

    def count_tokens(self, text: str) -> int:
        """Tokens of the whole text with the prompt of passages and the special tokens of one window."""
        tokenizer, _ = self.open()
        return len(tokenizer.encode(self.prompts.passage + accept_texts([text])[0])) if text.strip() else 0

    def _embed(self, texts: Sequence[str], prompt: str) -> list[Vector]:
        accepted = accept_texts(texts)
        if not accepted:
            return []
        tokenizer, session = self.open()
        compute = self._computation(tokenizer, session, prompt)
        with telemetry.EmbeddingsCall(
            system=self.system, model=self.model, dims=self.dims, texts=accepted, encoding_format="float"
        ) as call:
            windows = {
                text: self.files.windows(tokenizer, text, self.spec.window, prompt) for text in dict.fromkeys(accepted)
            }
            flat = [window for of_text in windows.values() for window in of_text]
            call.input_tokens = sum(len(window) for window in flat)
            if self.threads == 1 or len(flat) == 1:
                means = iter([compute(window) for window in flat])
            else:
                with ThreadPoolExecutor(min(self.threads, len(flat)), thread_name_prefix="ragd-embed") as workers:
                    means = iter(list(workers.map(compute, flat)))
            special = len(tokenizer.encode(prompt))
            vectors = {
                text: self._shortened(
                    [next(means) for _ in of_text], [max(1, len(window) - special) for window in of_text]
                )
                for text, of_text in windows.items()
            }
            call.record_vectors([vectors[text] for text in accepted])
        return [cast(Vector, vectors[text]) for text in accepted]

    def _shortened(self, vectors: list[Numbers], weights: list[int]) -> FloatArray:
        """The unit vector of a text's windows, each cut to `dims` and brought to unit length before."""
        cut = [vector[: self.dims] for vector in vectors]
        vector = average_windows([part / (np.linalg.norm(part) or 1.0) for part in cut], weights)
        if not vector.any():
            raise self.files.refuse("gives a vector of zeros only; export it again")
        return vector

    def _computation(
        self, tokenizer: Tokenizer, session: InferenceSession, prompt: str
    ) -> Callable[[Encoding], Numbers]:
        """From a window to the vector that the folder's modules make of it, not truncated."""
        names = [item.name for item in session.get_outputs()]
        output = next((name for name in (*TOKEN_OUTPUTS, TEXT_OUTPUT) if name in names), "")
        skipped = self._prompt_tokens(tokenizer, prompt) if self.spec.skips_prompt else 0
        if not output or (output == TEXT_OUTPUT and skipped):
            raise self.files.refuse(
                f"gives {', '.join(names)}; expected {' or '.join(TOKEN_OUTPUTS)}, or {TEXT_OUTPUT} where the prompt "
                "is part of the pooling: export it again"
            )

        def compute(window: Encoding) -> Numbers:
            values = self.files.run(session, window, output)
            if output == TEXT_OUTPUT:
                vector = values.reshape(-1)
            else:
                tokens = values.reshape(-1, values.shape[-1])
                if len(tokens) != len(window):
                    raise self.files.refuse(f"gives {len(tokens)} vectors for {len(window)} tokens; export it again")
                self._check_width(tokens.shape[-1] * len(self.pooling), self._pooled_dims)
                vector = pool(tokens, self.pooling, skipped)
                for step in self.spec.steps:
                    vector = step.apply(vector)
            self._check_width(len(vector), self.native_dims)
            return vector

        return compute

    @property
    def _pooled_dims(self) -> int:
        dense = [step for step in self.spec.steps if hasattr(step, "weight")]
        return dense[0].weight.shape[1] if dense else self.native_dims

    def _check_width(self, given: int, expected: int) -> None:
        if given != expected:
            raise self.files.refuse(
                f"gives {given} dimensions where its configuration says {expected}; correct word_embedding_dimension, "
                "or export it again"
            )

    def _prompt_tokens(self, tokenizer: Tokenizer, prompt: str) -> int:
        """How many tokens the prompt takes at the beginning: with the special ones before it, without those behind."""
        if not prompt:
            return 0
        encoding = tokenizer.encode(prompt)
        return len(encoding) - (1 if encoding.special_tokens_mask[-1] else 0)

    def _check_dims(self, dims: int) -> int:
        if dims not in (self.native_dims, self.spec.default_dims, *self.matryoshka_dims):
            sizes = ", ".join(str(size) for size in (*self.matryoshka_dims, self.native_dims))
            raise DimensionMismatch(
                f"the model {self.files.name!r} makes {sizes} dimensions, not {dims}; state one of these, or name the "
                "size in matryoshka_dims of its config_sentence_transformers.json if it was trained for it",
                field="embed_dims",
            )
        return dims


KIND = "sparse encoder"
ROUTER_FILE, IDF_FILE = "router_config.json", "idf.json"
QUERY, DOCUMENT, POOLING = "SparseStaticEmbedding", ("Transformer", "MLMTransformer"), "SpladePooling"
STRATEGIES, ACTIVATIONS = ("max", "sum"), ("relu", "log1p_relu")
LEARNED_SCALE = 0.5  # of stored weights; a weight of 4.4, a logit of 80, is the highest that counts in full
TERMS_MAX = 2_000  # of one text; real encoders keep some hundreds
CACHED_MAX = 4_096
EXPORT = "`optimum-cli export onnx --library transformers --task fill-mask --model MODEL FOLDER/onnx`"

Terms = Mapping[str, float]


class SparseEncoder(FolderModel):
    """path: the folder. EmbedderError as a FolderEmbedder's: "damaged_model" or "changed_model"."""

    def __init__(self, path: Path | str, *, threads: int | None = None) -> None:
        root = Path(os.path.abspath(path))
        reader = FolderReader(GraphFolder(root, kind=KIND, refusal=refuse_folder))
        transformer, pooling, query = _read_modules(reader)
        files = GraphFolder(transformer, kind=KIND, refusal=refuse_folder)
        if not any((transformer / place).is_file() for place in GRAPH_PLACES):
            raise files.refuse(f"has no {' or '.join(GRAPH_PLACES)}; export the model to ONNX with {EXPORT}")
        inner = FolderReader(files)
        limits = inner.read_window_file("fill-mask")
        self.window = inner.read_window(limits, inner.read_object(transformer / CONFIG_FILE))
        self.strategy, self.activation = _read_pooling(reader, pooling)
        self._query = query
        lower_case = bool(limits.get("do_lower_case"))
        used = [*files.find(), *reader.used, *inner.used, *_query_files(reader, query)]
        super().__init__(files, tuple(dict.fromkeys(used)), lower_case=lower_case, threads=threads, root=root)
        self._known: OrderedDict[str, Terms] = OrderedDict()
        self._known_lock = Lock()
        self._asked: tuple[Tokenizer, Terms] | None = None

    def encode(self, texts: Sequence[str]) -> list[Terms]:
        """For each text its terms, tokens of the vocabulary, with weights above 0; the TERMS_MAX heaviest of them.

        Special tokens are none. A text that is longer than the window is read in windows, whose terms are joined as
        those of one are: the highest, or the sum. {} for a blank text. The last CACHED_MAX texts are remembered.
        """
        with self._known_lock:
            known = {text: self._known[text] for text in texts if text in self._known}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known |= zip(missing, self._encode(missing), strict=True)
        with self._known_lock:
            for text in known:
                self._known[text] = known[text]
                self._known.move_to_end(text)
            while len(self._known) > CACHED_MAX:
                self._known.popitem(last=False)
        return [known[text] for text in texts]

    def query_terms(self, text: str) -> Terms:
        """The tokens of a query, each once, with their weights above 0. No model is read."""
        self.check_unchanged()
        if self._asked is None:
            self._asked = self._open_query()
        tokenizer, weights = self._asked
        tokens = tokenizer.encode(LONE_SURROGATE.sub("\ufffd", text), add_special_tokens=False).tokens
        return {token: weights[token] for token in dict.fromkeys(tokens) if weights.get(token, 0.0) > 0}

    def _encode(self, texts: Sequence[str]) -> list[Terms]:
        tokenizer, session = self.open()
        if "logits" not in [item.name for item in session.get_outputs()]:
            raise self.files.refuse(f"gives no logits; expected a masked language model: export it with {EXPORT}")
        special = {place for place, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        windows = [
            self.files.windows(tokenizer, LONE_SURROGATE.sub("\ufffd", text), self.window) if text.strip() else []
            for text in texts
        ]
        flat = [window for of_text in windows for window in of_text]

        def compute(window: Encoding) -> Numbers:
            return self._pool(self.files.run(session, window, "logits"), len(window))

        if self.threads == 1 or len(flat) <= 1:
            pooled = iter([compute(window) for window in flat])
        else:
            with ThreadPoolExecutor(min(self.threads, len(flat)), thread_name_prefix="ragd-sparse") as workers:
                pooled = iter(list(workers.map(compute, flat)))
        return [self._terms(tokenizer, special, [next(pooled) for _ in of_text]) for of_text in windows]

    def _pool(self, logits: Numbers, tokens: int) -> Numbers:
        rows = logits.reshape(-1, logits.shape[-1])
        if len(rows) != tokens:
            raise self.files.refuse(f"gives {len(rows)} rows of logits for {tokens} tokens; export it again")
        if self.strategy == "max":  # the logarithm keeps the order
            return self._activate(rows.max(axis=0))
        summed: Numbers = self._activate(rows).sum(axis=0)
        return summed

    def _activate(self, logits: Numbers) -> Numbers:
        weights: Numbers = np.log1p(np.maximum(logits, 0))
        return np.log1p(weights) if self.activation == "log1p_relu" else weights

    def _terms(self, tokenizer: Tokenizer, special: set[int], pooled: list[Numbers]) -> Terms:
        if not pooled:
            return {}
        join: Callable[..., Numbers] = np.max if self.strategy == "max" else np.sum
        weights = join(np.stack(pooled), axis=0)
        order = np.lexsort((np.arange(len(weights)), -weights))
        terms: dict[str, float] = {}
        for place in order.tolist():
            if weights[place] <= 0 or len(terms) == TERMS_MAX:
                break
            token = tokenizer.id_to_token(place)
            if token and "\0" not in token and place not in special:
                terms[token] = float(weights[place])
        return terms

    def _open_query(self) -> tuple[Tokenizer, Terms]:
        """The tokenizer of queries, the documents' where they have none of their own, and the weights of its tokens."""
        from tokenizers import Tokenizer

        *own, weights = _query_files(FolderReader(self.files), self._query)
        try:
            tokenizer = Tokenizer.from_file(str(own[0] if own else self.files.find()[1]))
            tokenizer.no_padding()
            tokenizer.no_truncation()
            self._prepare(tokenizer)
            return tokenizer, _read_weights(weights, tokenizer)
        except Exception as error:  # the library raises kinds of its own
            raise self.files.refuse(f"has a {weights.name} that holds no weight per token ({error})") from error


def _read_modules(reader: FolderReader) -> tuple[Path, Path, Path]:
    """The folders of the document's transformer, of its pooling, and of the query's side."""
    path = reader.folder / MODULES_FILE
    if not path.is_file():
        raise reader.files.refuse(
            f"has no {MODULES_FILE}; expected the folder of a SparseEncoder: save it with sentence-transformers"
        )
    modules = [(str(item.get("path", "")), str(item.get("type", ""))) for item in reader.read_json(path, list)]
    query: list[tuple[str, str]] = []
    if [_kind(named) for _, named in modules] == ["Router"]:
        place = reader.folder / modules[0][0]
        router = reader.read_object(place / ROUTER_FILE)
        types, structure = router.get("types") or {}, router.get("structure") or {}
        prefix = Path(modules[0][0])
        query, modules = (
            [((prefix / name).as_posix(), str(types.get(name, ""))) for name in structure.get(side) or []]
            for side in ("query", "document")
        )
    kinds = [_kind(named) for _, named in modules]
    foreign = [named for _, named in (*query, *modules) if not named.startswith("sentence_transformers.")]
    if foreign or len(kinds) != 2 or kinds[0] not in DOCUMENT or kinds[1] != POOLING:
        raise reader.files.refuse(
            f"reads documents with {', '.join(foreign or kinds) or 'no module'}; expected {DOCUMENT[0]} and {POOLING} "
            "of sentence_transformers: take a model of the SPLADE-doc form"
        )
    if query and [_kind(named) for _, named in query] != [QUERY]:
        raise reader.files.refuse(
            f"reads queries with {', '.join(_kind(named) for _, named in query)}; expected {QUERY}, which needs no "
            "model: take a model of the SPLADE-doc form"
        )
    folders = [reader.folder / place for place, _ in (*modules, *query)]
    if any(".." in Path(place).parts or Path(place).is_absolute() for place, _ in (*modules, *query)):
        raise reader.files.refuse(f"has a module outside the folder in {MODULES_FILE}")
    return folders[0], folders[1], folders[2] if query else reader.folder


def _kind(named: str) -> str:
    return named.rsplit(".", 1)[-1]


def _read_pooling(reader: FolderReader, folder: Path) -> tuple[str, str]:
    config = reader.read_object(folder / CONFIG_FILE)
    strategy, activation = str(config.get("pooling_strategy", "")), str(config.get("activation_function", ""))
    if strategy not in STRATEGIES or activation not in ACTIVATIONS:
        raise reader.files.refuse(
            f"has the pooling_strategy {strategy!r} and the activation_function {activation!r} in "
            f"{folder.name}/{CONFIG_FILE}; expected one of {', '.join(STRATEGIES)} and one of {', '.join(ACTIVATIONS)}"
        )
    return strategy, activation


def _query_files(reader: FolderReader, folder: Path) -> list[Path]:
    """The files that decide what a query's tokens count; the last one holds the weights."""
    config = reader.read_object(folder / CONFIG_FILE) if folder != reader.folder else {}
    named = str(config.get("path") or "")
    places = [folder / named] if named.endswith(".json") and ".." not in named else []
    found = next((place for place in (*places, folder / IDF_FILE, folder / WEIGHTS_FILE) if place.is_file()), None)
    if found is None or (found.name == WEIGHTS_FILE and folder == reader.folder):
        raise reader.files.refuse(
            f"does not say what the tokens of a query count; add {IDF_FILE}, an object of token and weight, or the "
            f"{WEIGHTS_FILE} of its {QUERY}"
        )
    tokenizer = folder / TOKENIZER_FILE
    return [*([tokenizer] if tokenizer.is_file() else []), found]


def _read_weights(path: Path, tokenizer: Tokenizer) -> Terms:
    if path.suffix == ".json":
        return {str(token): float(weight) for token, weight in json.loads(path.read_text(encoding="utf-8")).items()}
    weights = read_tensors(path)["weight"].reshape(-1)
    tokens: Mapping[str, int] = tokenizer.get_vocab()
    return {token: float(weights[place]) for token, place in tokens.items() if place < len(weights)}


_folders: list[Callable[[], Sequence[str]]] = []
_encoders: dict[str, SparseEncoder] = {}


def use_folders(folders: Callable[[], Sequence[str]]) -> None:
    """Where `encoder_named` and `list_encoders` look from now on."""
    _folders[:] = [folders]


def list_encoders() -> list[SparseEncoder]:
    """The encoders of this process's folders as these are now; one that cannot be read is left out."""
    found = map(open_encoder, _folders[0]() if _folders else ())
    return [encoder for encoder in found if isinstance(encoder, SparseEncoder)]


def encoder_named(model: str) -> SparseEncoder:
    """The encoder of this name and checksum. EmbedderError of kind "changed_model" when there is none."""
    there = []
    for path in _folders[0]() if _folders else ():
        found = open_encoder(path)
        if isinstance(found, EmbedderError):
            there.append(found.message)
        elif found.model == model:
            return found
        elif found.name == model.rpartition("@")[0]:
            there.append(f"the folder {path!r} now has {found.model.rpartition('@')[2]}")
    raise changed_folder(model, "; ".join(there) or "no folder of that name is set up")


def is_sparse_model(language: str) -> bool:
    """Whether what a collection reads keywords by is a sparse encoder, not a text search configuration."""
    return IDENTITY.fullmatch(language) is not None


def open_encoder(path: str) -> SparseEncoder | EmbedderError:
    """This process's encoder of a folder as it is now, or why there is none."""
    known = _encoders.get(path)
    try:
        if known is not None:
            known.check_unchanged()
            return known
    except EmbedderError:
        del _encoders[path]
    try:
        return _encoders.setdefault(path, SparseEncoder(path))
    except EmbedderError as error:
        return error
