"""multilingual-e5-small of the extra: meaning over languages, determinism, windows, forks, what is missing or wrong."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
from pathlib import Path

import numpy as np
import pytest

from ragd.errors import EmbedderError
from ragd.models import multilingual_e5
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.types import Embedder
from tests.refusals import raises_with

TEXTS = ["The store keeps vectors.", "Die Katze schläft.", "बिल्ली सो रही है।", "猫在睡觉。", "Le chat dort. " * 9]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return MultilingualE5Embedder(threads=2)


def test_a_question_finds_its_sentence_in_another_language(embedder: Embedder) -> None:
    questions = np.asarray([embedder.embed_query("The cat is asleep."), embedder.embed_query("Interest rates rose.")])
    sleeping = ["Die Katze schläft.", "बिल्ली सो रही है।", "猫在睡觉。", "Кошка спит."]
    rising = ["Die Zinsen stiegen.", "ब्याज दरें बढ़ीं।", "利率上升了。", "Процентные ставки выросли."]
    likeness = questions @ np.asarray(embedder.embed([*sleeping, *rising])).T
    assert (likeness.argmax(axis=0) == [0] * len(sleeping) + [1] * len(rising)).all()


def test_a_question_is_read_as_one(embedder: Embedder) -> None:
    assert not np.array_equal(embedder.embed_query(TEXTS[0]), embedder.embed([TEXTS[0]])[0])


def test_a_long_text_is_the_mean_of_windows_that_the_model_reads_whole(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = multilingual_e5.open_model()
    seen: list[tuple[str, int]] = []
    encode = model.encode

    def note(texts: list[str], is_query: bool) -> object:
        seen.extend([(text, model.token_count(text, is_query)) for text in texts])  # at once: threads note too
        return encode(texts, is_query)

    monkeypatch.setattr(model, "encode", note)
    monkeypatch.setattr(multilingual_e5, "WINDOW", 64)
    [vector] = embedder.embed(
        ["Das Wetter war mild und nichts geschah. " * 6 + "Auf Island brach ein Vulkan aus. " * 2]
    )
    read = [tokens for _, tokens in seen]
    assert len(read) > 1 and max(read) <= 64 < sum(read)
    windows = np.asarray([encode([text], False)[0] for text, _ in seen], dtype=np.float64)
    mean = (windows * np.asarray(read)[:, None]).sum(axis=0)
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)


def test_characters_that_no_string_of_the_engine_holds_are_embedded(embedder: Embedder) -> None:
    hidden, surrogate, plain = embedder.embed(["hello\0 world of rivers", "hello\ud800 world of rivers", "hello"])
    assert np.array_equal(hidden, surrogate)
    assert not np.allclose(hidden, plain, atol=0.01)


def _send_vector(pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(np.asarray(MultilingualE5Embedder(threads=2).embed(TEXTS)).tobytes())


def test_a_forked_child_goes_on(embedder: Embedder) -> None:
    """The engine's threads would not be there in the child, which would wait for them for ever."""
    expected = np.asarray(embedder.embed(TEXTS)).tobytes()
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send_vector, args=(sending,))
    child.start()
    try:
        assert receiving.poll(30) and receiving.recv() == expected
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize(("wrong", "kind"), [("weights", "damaged_model"), ("machine", "unsupported_machine")])
def test_what_cannot_be_read_is_refused(wrong: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilingual_e5, "_opened", [])
    if wrong == "weights":
        (tmp_path / "weights").write_bytes(b"E5S1")
        monkeypatch.setattr(multilingual_e5, "locate_model", lambda: tmp_path / "weights")
    else:
        (tmp_path / "cpu").write_text("flags : fpu sse4_2 avx f16c\n")
        monkeypatch.setattr(multilingual_e5, "CPU_FACTS", tmp_path / "cpu")
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with raises_with(EmbedderError, kind=kind, retryable=False):
        MultilingualE5Embedder().embed_query("x")
