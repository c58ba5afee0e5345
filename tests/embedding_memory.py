"""The vectors that the tests of a process share: MiniLM embeds each window of text once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from pathlib import Path

from ragd.models.minilm import MiniLM, TokenIds
from ragd.text.windows import FloatArray


def remember_vectors() -> None:
    """A vector depends on its window alone, which tests/library/test_embedding_local.py shows without this."""
    embed = MiniLM.mean_vectors
    known: dict[tuple[Path, bytes], FloatArray] = {}

    @wraps(embed)
    def mean_vectors(self: MiniLM, windows: Sequence[TokenIds], threads: int) -> list[FloatArray]:
        keys = [(self.folder, window.tobytes()) for window in windows]
        unknown = {key: window for key, window in zip(keys, windows, strict=True) if key not in known}
        if unknown:
            known.update(zip(unknown, embed(self, list(unknown.values()), threads), strict=True))
        return [known[key].copy() for key in keys]

    MiniLM.mean_vectors = mean_vectors  # type: ignore[method-assign]
