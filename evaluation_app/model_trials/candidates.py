"""The index settings that an experiment tries: model, dimensions and the type of the vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collections_app.models import Collection
from collections_app.services.generations.generations import Target, check_embedder, resolve_target
from collections_app.services.models.registry import embedding_models
from ragd.errors import InvalidInput
from ragd.types import VECTOR_TYPES

CANDIDATES_MAX = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One index: every vector of the model cut to `embed_dims`, its HNSW index over `vector_type`."""

    embed_model: str
    embed_dims: int
    vector_type: str = "vector"

    @property
    def label(self) -> str:
        """Name, dimensions and, where it is not the default, the type."""
        parts = [self.embed_model, f"{self.embed_dims}", *([self.vector_type] if self.vector_type != "vector" else [])]
        return " · ".join(parts)

    @property
    def written(self) -> str:
        """As `parse_candidate` reads it."""
        return f"{self.embed_model}:{self.embed_dims}:{self.vector_type}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def target(self, collection: Collection) -> Target:
        """What a generation of it would be: the collection's own settings otherwise."""
        return resolve_target(collection, self.as_dict())


def current_candidate(collection: Collection) -> Candidate:
    """The one that serves."""
    return Candidate(collection.embed_model, collection.embed_dims, collection.vector_type)


def other_models(collection: Collection) -> list[str]:
    """The embedding models that are set up besides the collection's own, by the names that an index is made with."""
    return [entry.index_name for entry in embedding_models() if entry.identity != collection.embed_model]


def read_candidates(collection: Collection, stated: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """The collection's own and what is stated, each once, the own one first; every model has embedded a text.

    stated: {"embed_model", "embed_dims"?, "vector_type"?}, what is missing as in `resolve_target`. Raises InvalidInput
    for none or too many, and what `resolve_target` and `check_embedder` raise.
    """
    found = [current_candidate(collection)]
    for values in stated:
        spec = resolve_target(collection, {name: value for name, value in values.items() if value}).spec
        candidate = Candidate(spec.embed_model, spec.embed_dims, spec.vector_type)
        if candidate not in found:
            found.append(candidate)
    if len(found) < 2:
        raise InvalidInput("choose at least one model besides the collection's own", field="models")
    if len(found) > CANDIDATES_MAX:
        raise InvalidInput(f"at most {CANDIDATES_MAX} models are compared at once, not {len(found)}", field="models")
    for candidate in found:
        check_embedder(candidate.target(collection))
    return found


def parse_candidate(text: str) -> dict[str, Any]:
    """NAME[:DIMENSIONS][:vector|halfvec], as the command line and the page's field take it; a name may hold colons.

    Raises InvalidInput where there is no name.
    """
    name, values = text.strip(), dict[str, Any]()
    head, _, last = name.rpartition(":")
    if last in VECTOR_TYPES:
        name, values["vector_type"] = head, last
        head, _, last = name.rpartition(":")
    if last.isascii() and last.isdigit():
        name, values["embed_dims"] = head, int(last)
    if not name:
        raise InvalidInput(f"expected NAME, NAME:DIMENSIONS or NAME:DIMENSIONS:halfvec, not {text!r}", field="models")
    return {"embed_model": name} | values
