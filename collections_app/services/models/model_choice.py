"""What an embedding model means for an index, said while it is chosen: dimensions, languages, size, or why it is
refused."""

from __future__ import annotations

from dataclasses import dataclass

from collections_app.services.endpoints.embedding_model import resolve_model
from collections_app.services.models.registry import (
    ENGLISH,
    MULTILINGUAL_KEY,
    READY,
    ModelEntry,
    embedding_models,
    find_built_in,
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """model: as the collection would keep it. entry: what is known of it; None for one that only an endpoint knows.

    multilingual: the built-in model for other languages, where this one knows English alone and the language is not
    English; None where there is nothing to advise. names_language: whether the index states a language by name.
    """

    model: str
    dims: int
    entry: ModelEntry | None
    multilingual: ModelEntry | None
    names_language: bool

    @property
    def can_take_multilingual(self) -> bool:
        return self.multilingual is not None and self.multilingual.state == READY


def check_choice(model: str, dims: int | None, language: str) -> ModelChoice:
    """What a new index with this model would be. language: of keyword search, "auto" for that of each document.

    Raises InvalidInput and DimensionMismatch, as making the collection does.
    """
    identity, resolved = resolve_model(model, dims)
    entry = next((each for each in embedding_models() if identity in (each.identity, each.index_name)), None)
    is_english_only = entry is not None and entry.languages == ENGLISH
    other = find_built_in(MULTILINGUAL_KEY) if is_english_only and language != "english" else None
    return ModelChoice(identity, resolved, entry, other, language not in ("", "auto", "simple"))
