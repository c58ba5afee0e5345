"""Which embedding model a collection is made with."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from collections_app.domain.identity import UNSEEN
from collections_app.domain.model_presets import EMBEDDINGS, USUAL_DIMS
from collections_app.model_endpoints.endpoints import embedding_endpoint, stored
from collections_app.model_folders import first_folder, folder_paths, resolve_folder, stated_prompts
from collections_app.stores import LOCAL_MODEL, LOCAL_MODELS
from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput
from ragd.models import multilingual_e5
from ragd.models.openai_client import public_address
from ragd.models.prompts import split_identity
from ragd.store.store import HALFVEC_INDEX_DIMS

MODEL_MAX_CHARS = 200


def resolve_model(model: str | None, dims: int | None) -> tuple[str, int]:
    """Model and dimensions of a new collection.

    Another model than the server's needs its dimensions stated, and any but those of this process an endpoint.
    """
    chosen = (model or settings.RAGD_EMBED_MODEL).strip()
    if not chosen and (default := _folder_model("", dims)) is not None:
        return default
    if not chosen or len(chosen) > MODEL_MAX_CHARS or UNSEEN.search(chosen):
        raise InvalidInput(
            f"embed_model must be the name of a model, 1 to {MODEL_MAX_CHARS} characters", field="embed_model"
        )
    if chosen in LOCAL_MODELS:
        known = LOCAL_MODELS[chosen]
        if dims not in (None, known):
            raise DimensionMismatch(
                f"{chosen} makes {known} dimensions, not {dims}; leave embed_dims out", field="embed_dims"
            )
        if chosen == multilingual_e5.MODEL and multilingual_e5.find_model() is None:
            raise InvalidInput(
                f"the model {chosen} is not installed here; install it with `make run EXTRAS=multilingual`, or take"
                f" {LOCAL_MODEL}",
                field="embed_model",
            )
        return chosen, known
    folder = _folder_model(chosen, dims)
    if folder is not None:
        return folder
    stored.read()  # another process may have added it a moment ago
    endpoint = embedding_endpoint(chosen)
    if endpoint is None:  # no text leaves a machine unasked
        raise InvalidInput(
            f"no model {chosen!r} is set up, and no embedding endpoint that might know it: take one of"
            f" {', '.join(_known_models())}, add the model on the page Models, or set EMBED_BASE_URL or EMBED_API_KEY",
            field="embed_model",
        )
    if endpoint.setting_id is not None and endpoint.dims is not None:
        if dims not in (None, endpoint.dims):
            raise DimensionMismatch(
                f"{chosen} is set up with {endpoint.dims} dimensions, not {dims}; leave embed_dims out",
                field="embed_dims",
            )
        return chosen, endpoint.dims
    is_stated = endpoint.setting_id is not None or split_identity(chosen)[1]
    identity = chosen if is_stated else stated_prompts().identity(chosen)
    if dims is not None:
        if not 1 <= dims <= HALFVEC_INDEX_DIMS:
            raise InvalidInput(f"embed_dims must be from 1 to {HALFVEC_INDEX_DIMS}, not {dims}", field="embed_dims")
        return identity, dims
    if chosen != settings.RAGD_EMBED_MODEL:
        if (usual := USUAL_DIMS.get(split_identity(chosen)[0])) is not None:
            return identity, usual
        raise InvalidInput(
            f"state how many dimensions {chosen!r} makes (embed_dims): the server does not know it, and the endpoint"
            f" {public_address(endpoint.address)} is not asked before documents are embedded",
            field="embed_dims",
        )
    return identity, int(settings.RAGD_EMBED_DIMS)


def _known_models() -> list[str]:
    """Names that a new collection can state: installed here, in folders, and set up at endpoints."""
    built_in = [name for name in LOCAL_MODELS if name != multilingual_e5.MODEL or multilingual_e5.find_model()]
    folders = [Path(path).name for path in folder_paths()]
    return [*built_in, *folders, *(row.identity for row in stored.of(EMBEDDINGS))]


def default_model() -> tuple[str, int]:
    """What new collections get, as a form shows it: a folder by its name with checksum, anything else as it is set."""
    model, dims = settings.RAGD_EMBED_MODEL, int(settings.RAGD_EMBED_DIMS)
    try:
        return (None if model in LOCAL_MODELS else _folder_model(model, None)) or (model, dims)
    except InvalidInput:
        return model, dims


def _folder_model(model: str, dims: int | None) -> tuple[str, int] | None:
    """`resolve_folder`, with a folder that cannot be read as InvalidInput. model "": the first folder."""
    try:
        found = resolve_folder(model, dims) if model else first_folder(dims)
    except EmbedderError as error:
        raise InvalidInput(error.message, field="embed_model") from error
    if found is not None and found[1] > HALFVEC_INDEX_DIMS:
        raise DimensionMismatch(
            f"{model} makes {found[1]} dimensions, and an index holds at most {HALFVEC_INDEX_DIMS}; state a size that"
            " its folder can be truncated to",
            field="embed_dims",
        )
    return found
