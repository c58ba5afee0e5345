"""Every model that is set up: what is built in, in folders and at endpoints, where it runs and what it is used by.

What an embedding model means for an index, said while it is chosen: dimensions, languages, size, or why it is
refused.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings
from django.utils import timezone
from django.utils.translation import gettext_noop as _

from collections_app.collections.services import resolve_model
from collections_app.endpoints.connection_test import TestResult, last_tests
from collections_app.endpoints.endpoints import ENVIRONMENT, ModelEndpoint, environment_endpoint, is_overridden, stored
from collections_app.endpoints.model_folders import folder_paths, open_folder, sparse_paths, stated_prompts
from collections_app.endpoints.model_presets import CHAT, EMBEDDINGS, JUDGE, PURPOSES, RERANK
from collections_app.endpoints.providers import ProviderState, provider_states
from collections_app.index.stores import BUILTIN, CROSS_ENCODER, ENDPOINT, LOCAL_DIMS, LOCAL_MODEL
from collections_app.models import Collection, IndexVersion
from ragd.errors import EmbedderError, RagdError
from ragd.models import minilm, multilingual_e5
from ragd.models.embedding import OPENAI_WINDOW
from ragd.models.folder_embedder import open_encoder
from ragd.models.openai_client import public_address

SPARSE = "sparse"  # an encoder for keyword search; folders alone
GROUPS = {EMBEDDINGS: PURPOSES[EMBEDDINGS], SPARSE: _("Keyword search"), **PURPOSES}
IN_PROCESS, FOLDER, AT_ENDPOINT = _("built in"), _("folder"), _("endpoint")
HERE = _("this process")
ENGLISH, MANY_LANGUAGES = _("English"), _("about 100 languages")  # marked for pages
MULTILINGUAL_KEY = f"builtin:{multilingual_e5.MODEL}"
SOURCES = _("environment"), _("database")  # marked for pages
READY, INSTALLABLE, MISSING, OVERRIDDEN, UNREADABLE = "ready", "installable", "missing", "overridden", "unreadable"


@dataclass(frozen=True, slots=True)
class Use:
    """An index that was built with an embedding model. is_active: the one that answers searches now."""

    collection: str
    number: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model for people. key: names it for as long as it is set up so. purpose: one of GROUPS.

    kind: "built in" (this process), "folder" or "endpoint". identity: as collections or plans name it. source: "built
    in", "environment" or "database". state: "ready", "installable" (note says how), "missing" (note says what),
    "overridden" by the environment, "unreadable" (its key). languages: ENGLISH or MANY_LANGUAGES, of those that ragd
    ships. size_bytes, licence: None and "" where unknown. breaker:
    of an embedding endpoint that was in trouble. endpoint: what is asked, None where nothing is.
    """

    key: str
    purpose: str
    kind: str
    title: str
    identity: str
    where: str
    source: str
    state: str = READY
    note: str = ""
    dims: int | None = None
    window: int | None = None
    query_prompt: str = ""
    passage_prompt: str = ""
    size_bytes: int | None = None
    licence: str = ""
    languages: str = ""
    provider: str = ""
    is_default: bool = False
    setting_id: int | None = None
    endpoint: ModelEndpoint | None = None
    uses: tuple[Use, ...] = ()
    test: TestResult | None = None
    breaker: ProviderState | None = None

    @property
    def index_name(self) -> str:
        """The name to make an index with. To that of the environment its prompts' digest is added then."""
        return self.endpoint.model if self.endpoint is not None and self.source == ENVIRONMENT else self.identity

    @property
    def can_test(self) -> bool:
        """Whether one call can be made: an endpoint with a model's name, or one that has a single model."""
        return self.endpoint is not None and (bool(self.endpoint.model) or self.purpose == RERANK)

    @property
    def anchor(self) -> str:
        """The key as an id of a page."""
        return self.key.replace(":", "-")

    @property
    def collections(self) -> list[str]:
        """Names of those that use it now or keep an index with it."""
        return sorted({use.collection for use in self.uses})


def list_models() -> list[ModelEntry]:
    """By purpose in the order of GROUPS; built in, then folders, then endpoints: the environment's first.

    The rows of the database are read anew.
    """
    stored.read()
    entries = [*_built_in(), *_folders(), *_endpoints()]
    tests = last_tests([entry.endpoint for entry in entries if entry.endpoint is not None])
    results = iter(tests)
    uses = {EMBEDDINGS: _uses("embed_model"), SPARSE: _uses("language")}
    breakers = {state.name: state for state in provider_states(timezone.now())}
    order = list(GROUPS)
    completed = [
        replace(
            entry,
            uses=tuple(uses.get(entry.purpose, {}).get(entry.identity, ())),
            test=next(results) if entry.endpoint is not None else None,
            breaker=_breaker(entry, breakers),
        )
        for entry in entries
    ]
    return sorted(completed, key=lambda entry: order.index(entry.purpose))


def find_model(key: str) -> ModelEntry | None:
    """The entry of that key."""
    return next((entry for entry in list_models() if entry.key == key), None)


def find_built_in(key: str) -> ModelEntry | None:
    """The model of that key that ragd ships, installed or not."""
    return next((entry for entry in _built_in() if entry.key == key), None)


def embedding_models() -> list[ModelEntry]:
    """Those that a new index can be built with, without what `list_models` reads of their use and tests."""
    stored.read()
    entries = [*_built_in(), *_folders(), *_endpoints()]
    return [
        entry
        for entry in entries
        if entry.purpose == EMBEDDINGS and entry.state == READY and entry.identity and entry.dims
    ]


def _built_in() -> Iterable[ModelEntry]:
    folder = minilm.find_model()
    yield ModelEntry(
        f"builtin:{LOCAL_MODEL}", EMBEDDINGS, IN_PROCESS, LOCAL_MODEL, LOCAL_MODEL, HERE, IN_PROCESS,
        state=READY if folder else MISSING,
        note="" if folder else _("The package of the model is not installed: see requirements-model.txt."),
        dims=LOCAL_DIMS, window=minilm.WINDOW, size_bytes=_size(folder), licence="Apache-2.0",
        languages=ENGLISH,
    )  # fmt: skip
    found = multilingual_e5.find_model()
    yield ModelEntry(
        MULTILINGUAL_KEY, EMBEDDINGS, IN_PROCESS, multilingual_e5.MODEL, multilingual_e5.MODEL,
        HERE, IN_PROCESS,
        state=READY if found else INSTALLABLE,
        note="" if found else _("Install it with `make run EXTRAS=multilingual`."),
        dims=multilingual_e5.DIMS, window=multilingual_e5.WINDOW, query_prompt="query: ", passage_prompt="passage: ",
        size_bytes=_size(found), licence="MIT", languages=MANY_LANGUAGES,
    )  # fmt: skip
    yield ModelEntry(
        f"builtin:{BUILTIN}", RERANK, IN_PROCESS, _("Built-in reranker"), BUILTIN, HERE, IN_PROCESS,
        note=_("Compares the word vectors of all-MiniLM-L6-v2. Texts that it cannot read keep their places."),
        languages=ENGLISH,
    )  # fmt: skip
    yield ModelEntry(
        "builtin:extractive", CHAT, IN_PROCESS, _("Quotations"), "extractive", HERE, IN_PROCESS,
        note=_("Answers with quoted sentences where no chat model is set up."),
    )  # fmt: skip
    yield ModelEntry(
        "builtin:embedded", JUDGE, IN_PROCESS, _("Embedded judge"), "embedded", HERE, IN_PROCESS,
        note=_("Coefficients over the vectors of all-MiniLM-L6-v2."),
    )  # fmt: skip


def _folders() -> Iterable[ModelEntry]:
    """Embedding models, sparse encoders, cross-encoder and judge."""
    for number, path in enumerate(folder_paths()):
        yield _embedding_folder(f"folder:embeddings:{number}", path)
    for number, path in enumerate(sparse_paths()):
        yield _sparse_folder(f"folder:sparse:{number}", path)
    named = ((RERANK, settings.RAGD_CROSS_ENCODER_PATH, CROSS_ENCODER), (JUDGE, settings.RAGD_JUDGE_PATH, "embedded"))
    for purpose, path, identity in named:
        if path:
            there = Path(path).exists()
            yield ModelEntry(
                f"folder:{purpose}", purpose, FOLDER, Path(os.path.abspath(path)).name, identity, path, ENVIRONMENT,
                state=READY if there else MISSING,
                note="" if there else _("There is no such folder on this machine."),
                size_bytes=_size(Path(path)) if there else None,
            )  # fmt: skip


def _embedding_folder(key: str, path: str) -> ModelEntry:
    """One that cannot be read as a model is missing, and the note says why."""
    try:
        folder = open_folder(path)
    except RagdError as error:
        return ModelEntry(
            key, EMBEDDINGS, FOLDER, Path(path).name, "", path, ENVIRONMENT, state=MISSING, note=error.message
        )
    sizes = ", ".join(str(dims) for dims in folder.matryoshka_dims)
    return ModelEntry(
        key, EMBEDDINGS, FOLDER, folder.name, folder.model, path, ENVIRONMENT,
        note=f"{folder.pooling} pooling" + (f"; can be shortened to {sizes}" if sizes else ""),
        dims=folder.dims, window=folder.window, query_prompt=folder.prompts.query,
        passage_prompt=folder.prompts.passage, size_bytes=folder.size_bytes,
    )  # fmt: skip


def _sparse_folder(key: str, path: str) -> ModelEntry:
    found = open_encoder(path)
    if isinstance(found, EmbedderError):
        return ModelEntry(
            key, SPARSE, FOLDER, Path(path).name, "", path, ENVIRONMENT, state=MISSING, note=found.message
        )
    return ModelEntry(
        key, SPARSE, FOLDER, found.name, found.model, path, ENVIRONMENT,
        note=_("Chosen as the language of a collection."), window=found.window, size_bytes=found.size_bytes,
    )  # fmt: skip


def _endpoints() -> Iterable[ModelEntry]:
    for purpose in PURPOSES:
        own = environment_endpoint(purpose)
        if own is not None:
            yield _of_endpoint(_completed(own), f"environment:{purpose}", is_default=purpose != EMBEDDINGS)
        for row in stored.of(purpose):
            yield _of_endpoint(row, f"setting:{row.setting_id}", is_default=row.is_default and own is None)


def _completed(own: ModelEndpoint) -> ModelEndpoint:
    """The environment's embedding endpoint with its prompts; without a model where new collections use one of this
    process."""
    if own.purpose == EMBEDDINGS and own.model in (LOCAL_MODEL, multilingual_e5.MODEL, ""):
        return replace(own, model="", name="", identity="", dims=None)
    if own.purpose == EMBEDDINGS:
        prompts = stated_prompts()
        query, passage = prompts.query, prompts.passage
        return replace(own, identity=prompts.identity(own.model), query_prompt=query, passage_prompt=passage)
    return own


def _of_endpoint(endpoint: ModelEndpoint, key: str, *, is_default: bool) -> ModelEntry:
    state = OVERRIDDEN if is_overridden(endpoint) else UNREADABLE if endpoint.problem else READY
    note = endpoint.problem
    if state == OVERRIDDEN:
        note = _("The environment names another endpoint for this, which is used instead.")
    elif not endpoint.model and endpoint.purpose == EMBEDDINGS:
        note = _("Serves any model that a collection names and no setting does.")
    identity = endpoint.identity or endpoint.model
    if endpoint.purpose == RERANK:
        identity = ENDPOINT if endpoint.setting_id is None else endpoint.name
    return ModelEntry(
        key, endpoint.purpose, AT_ENDPOINT, endpoint.name or endpoint.model or _("Any model"), identity,
        public_address(endpoint.base_url or endpoint.address), endpoint.source,
        state=state, note=note, dims=endpoint.dims,
        window=(endpoint.window or OPENAI_WINDOW) if endpoint.purpose == EMBEDDINGS else None,
        query_prompt=endpoint.query_prompt, passage_prompt=endpoint.passage_prompt,
        provider=endpoint.preset.title if endpoint.setting_id is not None else "",
        is_default=is_default, setting_id=endpoint.setting_id, endpoint=endpoint,
    )  # fmt: skip


def _uses(field: str) -> dict[str, list[Use]]:
    """By the model that `field` names: live collections and the index versions that they keep."""
    numbers: dict[str, set[tuple[str, int]]] = defaultdict(set)
    active: set[tuple[str, int]] = set()
    for name, number, model in Collection.objects.live().values_list("name", "index_version", field):
        numbers[model].add((name, number))
        active.add((name, number))
    kept = IndexVersion.objects.kept().filter(collection__deleted_at__isnull=True)
    for name, number, model in kept.values_list("collection__name", "number", field):
        numbers[model].add((name, number))
    return {
        model: [Use(name, number, (name, number) in active) for name, number in sorted(found)]
        for model, found in numbers.items()
    }


def _breaker(entry: ModelEntry, breakers: dict[str, ProviderState]) -> ProviderState | None:
    if entry.endpoint is None or entry.purpose != EMBEDDINGS:
        return None
    return breakers.get(f"{public_address(entry.endpoint.address)} {entry.identity}"[:300])


def _size(folder: Path | None) -> int | None:
    """Bytes of the files of a folder, or of one file."""
    if folder is None or not folder.exists():
        return None
    files: Sequence[Path] = [folder] if folder.is_file() else [path for path in folder.rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files)


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
