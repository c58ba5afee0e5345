"""An embedder from a folder of the sentence-transformers form: equal to NumPy, and what is refused.
Prompts of models: their identity and the presets."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from ragd.errors import DimensionMismatch, EmbedderError, EmptyContent, InvalidInput
from ragd.models.folder_embedder import FolderEmbedder
from ragd.models.prompts import PROMPT_PRESETS, Prompts, check_prompts, preset_named, split_identity, suggest_preset
from ragd.models.sentence_folder import ACTIVATIONS, POOLINGS, Dense, pool, read_tensors
from tests.model_folders import (
    WIDTH,
    WINDOW,
    hidden,
    token_ids,
    write_dense,
    write_folder,
    write_graph,
    write_json,
    write_safetensors,
    write_tokenizer,
)
from tests.refusals import raises_with

TEXTS = ["the red sea", "oak", "a house of stone and iron", "Storm light: the wave"]
PROMPTS = {"query": "query: ", "document": "passage: the "}


def pooled(tokens: Any, mode: str, skipped: int = 0) -> Any:
    """The formulas of sentence_transformers' Pooling, one text without padding."""
    positions = np.arange(1, len(tokens) + 1, dtype=np.float64)[skipped:, None]
    kept = tokens[skipped:]
    return {
        "cls": kept[0],
        "max": kept.max(axis=0),
        "mean": kept.sum(axis=0) / len(kept),
        "mean_sqrt_len_tokens": kept.sum(axis=0) / math.sqrt(len(kept)),
        "weightedmean": (kept * positions).sum(axis=0) / positions.sum(),
        "lasttoken": tokens[-1],
    }[mode]


def unit(vector: Any) -> Any:
    return vector / np.linalg.norm(vector)


def expect(text: str, *modes: str, skipped: int = 0) -> Any:
    return unit(np.concatenate([pooled(hidden(token_ids(text)), mode, skipped) for mode in modes or ("mean",)]))


def assert_close(found: Any, expected: Any) -> None:
    assert np.abs(np.asarray(found, dtype=np.float64) - np.asarray(expected)).max() < 1e-6


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("mode", POOLINGS)
def test_every_pooling_with_every_prompt_form(tmp_path: Path, mode: str, newer: bool) -> None:
    folder = write_folder(tmp_path / "tiny", pooling=[mode], model={"prompts": PROMPTS}, newer=newer)
    embedder = FolderEmbedder(folder)
    assert (embedder.dims, embedder.window, embedder.pooling) == (WIDTH, WINDOW, (mode,))
    for text, vector in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        assert np.asarray(vector).dtype == np.float32
        assert_close(vector, expect("passage: the " + text, mode))
        assert_close(embedder.embed_query(text), expect("query: " + text, mode))


def test_several_poolings_are_joined_in_the_order_of_the_form(tmp_path: Path) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny", pooling=["mean", "cls", "max"]))
    assert embedder.dims == 3 * WIDTH
    assert_close(embedder.embed(["red oak"])[0], expect("red oak", "cls", "max", "mean"))


@pytest.mark.parametrize(
    ("model", "query", "passage"),
    [
        (None, "", ""),
        ({"prompts": {"query": "red: ", "passage": "oak: "}}, "red: ", "oak: "),
        ({"prompts": {"query": "red: ", "document": "", "passage": "oak: "}}, "red: ", ""),
        ({"prompts": {"query": "red: ", "corpus": "oak: "}}, "red: ", "oak: "),
        ({"prompts": {"query": "red: "}, "default_prompt_name": None}, "red: ", ""),
        ({"prompts": {"all": "sea: "}, "default_prompt_name": "all"}, "sea: ", "sea: "),
        ({"prompts": {"query": "red: ", "all": "sea: "}, "default_prompt_name": "all"}, "red: ", "sea: "),
        ({"prompts": {}, "similarity_fn_name": "dot"}, "", ""),
    ],
)
def test_which_prompt_is_whose(tmp_path: Path, model: Any, query: str, passage: str) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny", model=model))
    assert (embedder.prompts.query, embedder.prompts.passage) == (query, passage)
    assert_close(embedder.embed_query("stone"), expect(query + "stone"))
    assert_close(embedder.embed(["stone"])[0], expect(passage + "stone"))


@pytest.mark.parametrize("mode", POOLINGS)
def test_a_prompt_that_is_left_out_of_the_pooling(tmp_path: Path, mode: str) -> None:
    folder = write_folder(tmp_path / "tiny", pooling=[mode], include_prompt=False, model={"prompts": PROMPTS})
    skipped = len(token_ids("query: ")) - 1  # [CLS] with it, [SEP] not
    assert_close(FolderEmbedder(folder).embed_query("red sea"), expect("query: red sea", mode, skipped=skipped))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [name.removeprefix("torch.nn.modules.") for name in ACTIVATIONS])
def test_a_dense_layer_with_each_activation(tmp_path: Path, activation: str, bias: bool) -> None:
    dense = {"out": 5, "activation": activation, "bias": bias}
    folder = write_folder(tmp_path / "tiny", dense=dense, normalize=False, model={"prompts": PROMPTS})
    tensors = read_tensors(folder / "2_Dense" / "model.safetensors")
    x = tensors["linear.weight"] @ hidden(token_ids("query: sea")).mean(axis=0) + tensors.get("linear.bias", 0.0)
    expected = {
        "Identity": x,
        "Tanh": np.tanh(x),
        "ReLU": np.maximum(x, 0),
        "Sigmoid": 1 / (1 + np.exp(-x)),
        "SiLU": x / (1 + np.exp(-x)),
        "GELU": np.array([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x]),
    }[activation.split(".")[-1]]
    embedder = FolderEmbedder(folder)
    assert embedder.dims == 5
    assert_close(embedder.embed_query("sea"), unit(expected))


def test_residual_connections_and_half_precision_weights(tmp_path: Path) -> None:
    x = np.array([1.0, -2.0])
    square, wide = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    name = "torch.nn.modules.linear.Identity"
    assert Dense(square, None, name, True).apply(x).tolist() == [-2.0, -7.0]
    assert Dense(wide, None, name, True, wide * 2).apply(x).tolist() == [3.0, -6.0, -3.0]
    header = json.dumps(
        {
            "half": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]},
            "brain": {"dtype": "BF16", "shape": [1], "data_offsets": [4, 6]},
            "__metadata__": {"format": "pt"},
        }
    ).encode()
    path = tmp_path / "model.safetensors"
    data = np.array([1.5, -2], "<f2").tobytes() + b"\x80\x3f"  # bfloat16 of 1.0
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    assert {key: value.tolist() for key, value in read_tensors(path).items()} == {"half": [1.5, -2.0], "brain": [1.0]}


def test_pooling_never_loses_every_token() -> None:
    tokens = np.arange(6.0).reshape(3, 2)
    assert pool(tokens, ("mean", "cls"), 9).tolist() == [4.0, 5.0, 4.0, 5.0]


def test_where_the_padding_would_be_and_who_else_is_in_the_call_change_no_bit(tmp_path: Path) -> None:
    texts = [f"{'red sea ' * n}{word}" for n in range(7) for word in ("oak", "house")]
    for padding in ("left", "right"):
        for mode in ("mean", "lasttoken", "cls"):
            folder = write_folder(tmp_path / f"{padding}-{mode}", pooling=[mode], padding=padding)
            alone = [bytes(FolderEmbedder(folder, threads=1).embed([text])[0]) for text in texts]
            for threads in (1, 4):
                together = FolderEmbedder(folder, threads=threads).embed([*texts[::-1], texts[0]])
                assert [bytes(vector) for vector in together] == [*alone[::-1], alone[0]]
            assert_close(FolderEmbedder(folder).embed([texts[0]])[0], expect(texts[0], mode))


@pytest.mark.parametrize("prompts", [{}, {"prompts": {"document": "passage: "}}])
def test_a_long_text_is_the_mean_of_even_windows_with_the_prompt_in_each(tmp_path: Path, prompts: Any) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny", model=prompts))
    prompt = prompts.get("prompts", {}).get("document", "")
    words = ["sea", "red", "oak", "wave", "storm"] * 6  # 30; rooms of 14 and 12 beside the special ones and the prompt
    sizes = [10, 10, 10]
    text = " ".join(words)
    starts = np.cumsum([0, *sizes])
    windows = [" ".join(words[start:end]) for start, end in pairwise(starts)]
    mean = sum(size * expect(prompt + window) for size, window in zip(sizes, windows, strict=True))
    assert_close(embedder.embed([text])[0], unit(mean))
    assert embedder.count_tokens(text) == len(words) + 2 + (2 if prompt else 0)


def test_a_text_that_just_fits_is_read_at_once(tmp_path: Path) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny"))
    text = " ".join(["sea", "red"] * 7)  # 14 and two special ones: the window
    assert_close(embedder.embed([text])[0], expect(text))


def test_truncation_only_to_sizes_that_the_folder_names(tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "plain")
    with pytest.raises(DimensionMismatch, match="makes 8 dimensions, not 4"):
        FolderEmbedder(plain, dims=4)
    full = np.asarray(FolderEmbedder(plain, dims=WIDTH).embed(["red sea"])[0], dtype=np.float64)
    for name, model, config, card in (
        ("model", {"matryoshka_dims": [6, 4, 8]}, {}, ""),
        ("config", {}, {"matryoshka_dimensions": [4, 6]}, ""),
        ("card", {}, {}, 'The loss was:\n```json\n{"loss": "x",\n "matryoshka_dims": [\n 8,\n 6, 4],\n "w": []}'),
    ):
        folder = write_folder(tmp_path / name, model=model)
        write_json(folder / "config.json", config)
        if card:
            (folder / "README.md").write_text(card)
        embedder = FolderEmbedder(folder, dims=4)
        assert (embedder.dims, embedder.native_dims, embedder.matryoshka_dims) == (4, WIDTH, (4, 6))
        assert_close(embedder.embed(["red sea"])[0], unit(full[:4]))
        assert FolderEmbedder(folder).dims == WIDTH
        with pytest.raises(DimensionMismatch):
            FolderEmbedder(folder, dims=5)
    truncated = write_folder(tmp_path / "truncated", model={"truncate_dim": 6})
    assert FolderEmbedder(truncated).dims == 6
    assert FolderEmbedder(truncated, dims=WIDTH).dims == WIDTH


@pytest.mark.parametrize("inputs", [["input_ids", "attention_mask", "position_ids"], ["input_ids", "attention_mask"]])
def test_inputs_and_outputs_as_exports_name_them(tmp_path: Path, inputs: list[str]) -> None:
    for outputs in (["sentence_embedding", "token_embeddings"], ["sentence_embedding"], ["last_hidden_state"]):
        folder = write_folder(tmp_path / "-".join(outputs), outputs=outputs, inputs=inputs, model={"prompts": PROMPTS})
        assert_close(FolderEmbedder(folder).embed_query("wave"), expect("query: wave"))


def test_lower_case_where_the_folder_asks_for_it(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    write_tokenizer(folder, lower=False)
    assert_close(FolderEmbedder(folder).embed(["RED sea"])[0], expect("unknown sea"))
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": WINDOW, "do_lower_case": True})
    assert_close(FolderEmbedder(folder).embed(["RED sea"])[0], expect("red sea"))


def test_the_window_that_the_folder_states(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", window=None)
    write_json(folder / "config.json", {"max_position_embeddings": 40})
    assert FolderEmbedder(folder).window == 40
    write_json(folder / "config.json", {"max_position_embeddings": 42, "model_type": "xlm-roberta"})
    assert FolderEmbedder(folder).window == 40
    write_json(folder / "tokenizer_config.json", {"model_max_length": 30})
    assert FolderEmbedder(folder).window == 30
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20})
    assert FolderEmbedder(folder).window == 20


def test_the_name_holds_the_checksum_of_what_decides_vectors(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", model={"prompts": PROMPTS}, dense={"out": 5}, external=True)
    first = FolderEmbedder(folder)
    assert first.model == f"tiny@{first.checksum[:12]}"
    assert first.size_bytes == sum(path.stat().st_size for path in first.spec.files)
    (folder / "README.md").write_text("a card")
    (folder / "onnx" / "other.onnx").write_bytes(b"not read")
    assert FolderEmbedder(folder).model == first.model
    copied = write_folder(tmp_path / "copy" / "tiny", model={"prompts": PROMPTS}, dense={"out": 5}, external=True)
    assert FolderEmbedder(copied).model == first.model
    seen = {first.checksum}
    for place in (
        "onnx/model.onnx_data", "tokenizer.json", "2_Dense/model.safetensors", "config_sentence_transformers.json",
        "1_Pooling/config.json", "sentence_bert_config.json",
    ):  # fmt: skip
        content = (folder / place).read_bytes()
        (folder / place).write_bytes(content + b" " if place.endswith("json") else content[:-1] + b"\x01")
        seen.add(FolderEmbedder(folder).checksum)
        (folder / place).write_bytes(content)
    assert len(seen) == 7


def test_a_folder_that_changes_or_goes_is_refused_with_both_checksums(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    embedder = FolderEmbedder(folder)
    vector = bytes(embedder.embed_query("sea"))
    os.utime(folder / "onnx" / "model.onnx", (1, 1))  # the same bytes
    assert bytes(embedder.embed_query("sea")) == vector
    write_graph(folder / "onnx" / "model.onnx", seed=8)
    other = FolderEmbedder(folder)
    for ask in (lambda: embedder.embed_query("sea"), lambda: embedder.embed(["sea"])):
        with raises_with(EmbedderError, kind="changed_model") as caught:
            ask()
        assert embedder.checksum[:12] in caught.value.message
        assert other.checksum[:12] in caught.value.message
    (folder / "tokenizer.json").unlink()
    with raises_with(EmbedderError, kind="changed_model", retryable=False):
        embedder.embed_query("sea")


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny"))
    vector = bytes(embedder.embed_query("sea"))
    child = os.fork()
    if child == 0:
        os._exit(0 if bytes(embedder.embed_query("sea")) == vector else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_texts_are_checked_as_by_every_embedder(tmp_path: Path) -> None:
    embedder = FolderEmbedder(write_folder(tmp_path / "tiny"))
    assert embedder.embed([]) == []
    assert embedder.count_tokens(" ") == 0
    with pytest.raises(EmptyContent):
        embedder.embed(["sea", " "])
    with pytest.raises(InvalidInput):
        embedder.embed("sea")
    assert_close(embedder.embed(["\ud800"])[0], expect("unknown"))
    with pytest.raises(InvalidInput):
        FolderEmbedder(embedder.path, threads=0)


def drop(*places: str) -> Callable[[Path], None]:
    return lambda folder: [(folder / place).unlink() for place in places] and None


def put(place: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: write_json(folder / place, value)


def tweak(place: str, **values: Any) -> Callable[[Path], None]:
    """Some keys of a configuration set, or left out where None."""

    def change(folder: Path) -> None:
        config = json.loads((folder / place).read_text()) | values
        write_json(folder / place, {key: value for key, value in config.items() if value is not None})

    return change


MODEL, WINDOW_FILE, POOLING, DENSE = (
    "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json",
)  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (drop("modules.json"), "no modules.json"),
        (put("modules.json", {}), "modules.json that is no JSON list"),
        (put("modules.json", [{"type": "sentence_transformers.models.Transformer"}]), "expected Transformer, Pooling"),
        (put("modules.json", [{"type": "custom_st.Transformer"}]), "'custom_st.Transformer'"),
        (put("modules.json", [{"type": "sentence_transformers.models.Pooling", "path": "../x"}]), "'../x'"),
        (drop("onnx/model.onnx"), "optimum-cli export onnx"),
        (drop("tokenizer.json"), "no tokenizer.json"),
        (drop(POOLING), "1_Pooling/config.json"),
        (put(POOLING, {"word_embedding_dimension": WIDTH}), "pooling_mode_mean_tokens"),
        (tweak(POOLING, pooling_mode="attention"), "attention"),
        (tweak(POOLING, word_embedding_dimension=None), "word_embedding_dimension"),
        (tweak(WINDOW_FILE, max_seq_length=None), "add max_seq_length"),
        (tweak(WINDOW_FILE, transformer_task="fill-mask"), "fill-mask"),
        (drop("2_Dense/model.safetensors"), "2_Dense/model.safetensors"),
        (lambda folder: (folder / "2_Dense/model.safetensors").write_bytes(b"no tensors at all"), "cannot be read"),
        (tweak(DENSE, activation_function="mine.Swish"), "'mine.Swish'"),
        (tweak(DENSE, module_input_name="token_embeddings"), "token_embeddings"),
        (tweak(DENSE, bias=False), "linear.bias"),
        (lambda folder: write_dense(folder / "2_Dense", 7, 5), "7 dimensions where 8 come in"),
        (
            lambda folder: write_safetensors(folder / "2_Dense/model.safetensors", {"linear.weight": np.ones(3)}),
            "shape",
        ),
        (put(MODEL, {"prompts": {"sts": "x: "}}), '"document"'),
        (put(MODEL, {"prompts": {"query": 3}}), '"document"'),
        (put(MODEL, {"prompts": {}, "default_prompt_name": "query"}), "'query'"),
        (put(MODEL, {"similarity_fn_name": "manhattan"}), "manhattan"),
        (put(MODEL, {"matryoshka_dims": "4"}), "matryoshka_dims"),
        (put(MODEL, {"truncate_dim": 9}), "truncate_dim"),
        (put("config.json", {"_name_or_path": "intfloat/e5-base-v2"}), "passage: "),
        (lambda folder: (folder / MODEL).write_text("{"), "no JSON"),
    ],
)
def test_what_the_folder_does_not_say_is_refused(tmp_path: Path, spoil: Callable[[Path], Any], said: str) -> None:
    folder = write_folder(tmp_path / "tiny", dense={"out": 5}, model={})
    FolderEmbedder(folder)
    spoil(folder)
    with raises_with(EmbedderError, kind="damaged_model", retryable=False) as caught:
        FolderEmbedder(folder)
    assert said in caught.value.message
    assert str(folder) in caught.value.message


def test_vectors_that_are_not_normalized_are_compared_by_cosine_only(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", normalize=False, model={"similarity_fn_name": "cosine"})
    assert np.linalg.norm(np.asarray(FolderEmbedder(folder).embed_query("sea"))) == pytest.approx(1, abs=1e-6)
    write_json(folder / MODEL, {"similarity_fn_name": "dot"})
    with pytest.raises(EmbedderError, match="'dot'"):
        FolderEmbedder(folder)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ({"outputs": ["pooler_output"]}, "pooler_output"),
        ({"inputs": ["input_ids", "attention_mask", "pixel_values"]}, "'pixel_values'"),
    ],
)
def test_a_graph_of_another_kind_is_refused_at_the_first_text(tmp_path: Path, graph: dict[str, Any], said: str) -> None:
    folder = write_folder(tmp_path / "tiny", **graph)
    with pytest.raises(EmbedderError, match=said):
        FolderEmbedder(folder).embed_query("sea")


def test_a_width_that_is_not_the_stated_one_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    tweak(POOLING, word_embedding_dimension=9)(folder)
    with pytest.raises(EmbedderError, match="gives 8 dimensions where its configuration says 9"):
        FolderEmbedder(folder).embed_query("sea")
    prompted = write_folder(tmp_path / "prompted", model={"prompts": {"query": "red " * 20}})
    with pytest.raises(EmbedderError, match="prompt that fills its window"):
        FolderEmbedder(prompted).embed_query("sea")


def test_the_identity_changes_with_either_prompt_and_splits_again() -> None:
    made = [Prompts(*pair) for pair in (("q: ", ""), ("", "q: "), ("q: ", "p: "), ("q:", " p: "))]
    names = {prompts.identity("bge/m+x") for prompts in made}
    assert len(names) == len(made)
    for prompts in made:
        assert len(prompts.digest) == 8
        assert split_identity(prompts.identity("bge/m+x")) == ("bge/m+x", prompts.digest)
    assert Prompts().identity("bge") == "bge"
    assert split_identity("bge") == ("bge", "")
    assert (bool(Prompts()), bool(made[1])) == (False, True)


def test_every_preset_names_its_source_and_is_found_by_the_names_of_its_models() -> None:
    for name, preset in PROMPT_PRESETS.items():
        assert preset_named(name) is preset
        if name != "none":
            assert urlsplit(preset.source).scheme == "https"
            card = urlsplit(preset.source).path.rsplit("/", 1)[-1]
            assert suggest_preset(card) == name, card


@pytest.mark.parametrize(
    ("model", "preset"),
    [
        ("intfloat/multilingual-e5-small", "e5"),
        ("intfloat/e5-mistral-7b-instruct", "e5-instruct"),
        ("nomic-embed-text", "nomic"),
        ("Snowflake/snowflake-arctic-embed-m-v2.0", "arctic-v2"),
        ("snowflake-arctic-embed-xs", "arctic"),
        ("Qwen/Qwen3-Embedding-8B", "qwen3"),
        ("all-MiniLM-L6-v2", ""),
        ("text-embedding-3-small", ""),
    ],
)
def test_what_is_suggested_for_a_model(model: str, preset: str) -> None:
    assert suggest_preset(model) == preset


def test_what_is_no_preset_or_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput, match="e5-instruct"):
        preset_named("e6")
    with raises_with(InvalidInput, field="passage_prompt"):
        check_prompts("q", "p" * 1001)
    assert check_prompts("q", "p") == Prompts("q", "p")
