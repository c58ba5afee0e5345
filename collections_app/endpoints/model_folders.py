"""The embedding models in folders that this server is set up with, by the names that collections keep."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from django.conf import settings

from ragd.errors import EmbedderError, InvalidInput
from ragd.models.folder_embedder import FolderEmbedder
from ragd.models.graph_folder import DIGITS, IDENTITY, changed_folder
from ragd.models.prompts import PROMPT_PRESETS, Prompts, check_prompts, preset_named
from ragd.types import Vector

_opened: dict[tuple[str, int | None, int | None], FolderEmbedder] = {}
_lock = Lock()


def folder_paths() -> list[str]:
    """The folders of RAGD_EMBED_PATH, in their order; the first is the default where RAGD_EMBED_MODEL is ""."""
    return [path for path in settings.RAGD_EMBED_PATH.split(os.pathsep) if path]


def sparse_paths() -> list[str]:
    """The folders of RAGD_SPARSE_PATH."""
    return [path for path in settings.RAGD_SPARSE_PATH.split(os.pathsep) if path]


def open_folder(path: str, dims: int | None = None, threads: int | None = None) -> FolderEmbedder:
    """This process's embedder of a folder as it is now: made again when its files have changed.

    Raises EmbedderError for a folder that cannot be read as a model, DimensionMismatch for dims that it does not allow.
    """
    key = (path, dims, threads)
    with _lock:
        known = _opened.get(key)
    if known is not None:
        try:
            known.check_unchanged()
            return known
        except EmbedderError:
            pass
    made = FolderEmbedder(path, dims=dims, threads=threads)
    with _lock:
        _opened[key] = made
    return made


def is_folder_model(model: str) -> bool:
    """Whether a collection's model is that of a folder, by its name alone."""
    return IDENTITY.fullmatch(model) is not None


def folder_for(model: str, dims: int, threads: int | None = None) -> FolderEmbedder | AbsentFolder:
    """The embedder of a folder with this name and checksum, or what says why there is none."""
    for path in folder_paths():
        if Path(os.path.abspath(path)).name == model.rpartition("@")[0]:
            try:
                if open_folder(path).model == model:
                    return open_folder(path, dims, threads)
            except EmbedderError:
                continue
    return AbsentFolder(model, dims, threads)


def first_folder(dims: int | None) -> tuple[str, int] | None:
    """`resolve_folder` of the default folder; None when there is no folder."""
    made = open_folder(folder_paths()[0], dims) if folder_paths() else None
    return (made.model, made.dims) if made else None


def resolve_folder(model: str, dims: int | None) -> tuple[str, int] | None:
    """Name with checksum and dimensions of a model in a folder; None for a name that is not one's.

    model: a folder's name, alone or with its checksum. Raises InvalidInput for a name that two folders have or a
    checksum that none has, EmbedderError and DimensionMismatch as `open_folder`.
    """
    named = IDENTITY.fullmatch(model)
    name = named["name"] if named else model
    paths = [path for path in folder_paths() if Path(os.path.abspath(path)).name == name]
    found = {(folder := open_folder(path)).model: folder for path in paths}
    if named is None and len(found) > 1:
        raise InvalidInput(
            f"two folders are named {model!r}; state the checksum too: {' or '.join(found)}", field="embed_model"
        )
    if not found and named is None:
        return None
    chosen = found.get(model) if named else next(iter(found.values()))
    if chosen is None:
        there = ", ".join(found) or "no folder of that name"
        raise InvalidInput(
            f"there is no model {model!r}: RAGD_EMBED_PATH holds {there}; state one that is there", field="embed_model"
        )
    return chosen.model, open_folder(str(chosen.path), dims).dims


@dataclass(frozen=True, slots=True)
class AbsentFolder:
    """Stands in for a model whose folder is gone or has changed. It looks again whenever it is asked for a vector."""

    model: str
    dims: int
    threads: int | None = None
    window: int | None = None
    system: str = "ragd.local"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        return self._find().embed(texts) if texts else []

    def embed_query(self, text: str) -> Vector:
        return self._find().embed_query(text)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def _find(self) -> FolderEmbedder:
        found = folder_for(self.model, self.dims, self.threads)
        if isinstance(found, FolderEmbedder):
            return found
        raise changed_folder(self.model, self._what_is_there())

    def _what_is_there(self) -> str:
        name = self.model.rpartition("@")[0]
        said = []
        for path in folder_paths():
            if Path(os.path.abspath(path)).name == name:
                try:
                    said.append(f"the folder {path!r} now has {open_folder(path).checksum[:DIGITS]}")
                except EmbedderError as error:
                    said.append(error.message)
        return "; ".join(said) or "RAGD_EMBED_PATH names no folder of that name"


def stated_prompts() -> Prompts:
    """What new collections put before texts for endpoints: the preset, or what is stated in its place.

    Raises InvalidInput for a preset that does not exist.
    """
    preset = preset_named(settings.RAGD_EMBED_PROMPTS).prompts if settings.RAGD_EMBED_PROMPTS else Prompts()
    return check_prompts(
        settings.RAGD_EMBED_QUERY_PROMPT or preset.query, settings.RAGD_EMBED_PASSAGE_PROMPT or preset.passage
    )


def prompts_with(digest: str) -> Prompts | None:
    """The prompts of a collection's model: those that are stated now, or a preset's. None when no others are known."""
    known: Mapping[str, Prompts] = {
        prompts.digest: prompts
        for prompts in (*(preset.prompts for preset in PROMPT_PRESETS.values()), stated_prompts())
    }
    return known.get(digest) if digest else Prompts()
