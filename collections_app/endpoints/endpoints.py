"""Which endpoint serves what: one function for each purpose. The environment's goes first, then those of the database.

A process reads the rows of ModelSetting at most once in REFRESH_S seconds, over the connection of the thread that asks.
So what an administrator saves holds at once in that process and within REFRESH_S in every other one, web and worker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.conf import settings

from collections_app.endpoints.model_presets import (
    CHAT,
    EMBEDDINGS,
    JUDGE,
    OTHER,
    PRESETS,
    RERANK,
    Preset,
    chat_preset_of,
)
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt
from collections_app.errors import ServiceError
from collections_app.models import ModelSetting
from ragd.models.openai_client import OPENAI_URL

REFRESH_S = 2.0
ENVIRONMENT, DATABASE = "environment", "database"


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model at an address.

    base_url: "" for OpenAI's own. model: as the provider is asked for it. identity: as collections keep it. setting_id:
    the row, None for the environment's. problem: why it cannot be asked, "" where it can.
    """

    purpose: str
    source: str
    base_url: str
    model: str
    api_key: str = field(repr=False)
    name: str = ""
    identity: str = ""
    setting_id: int | None = None
    preset_key: str = OTHER.key
    dims: int | None = None
    window: int | None = None
    query_prompt: str = ""
    passage_prompt: str = ""
    send_dimensions: bool | None = None
    api_version: str = ""
    is_default: bool = False
    problem: str = ""

    @property
    def preset(self) -> Preset:
        return PRESETS.get(self.preset_key, OTHER)

    @property
    def address(self) -> str:
        """Where requests go, never empty."""
        return self.preset.address(self.base_url, self.model, self.api_version) or OPENAI_URL

    def require_key(self) -> None:
        """Raises ServiceError (503) when the stored key cannot be decrypted."""
        if self.problem:
            raise ServiceError(self.problem, type="model_key_unreadable", status=503)

    def model_for(self, named: str) -> str:
        """What the provider is asked for: a model that a request names, else the endpoint's own."""
        return self.model if named in ("", self.name, self.model) else named


class StoredEndpoints:
    """The rows of ModelSetting as this process last read them."""

    def __init__(self) -> None:
        self._rows: tuple[ModelEndpoint, ...] = ()
        self._read_at: float | None = None

    def of(self, purpose: str) -> list[ModelEndpoint]:
        """Of one purpose: the default first, then by age."""
        if self._read_at is None or time.monotonic() - self._read_at > REFRESH_S:
            self.read()
        return [row for row in self._rows if row.purpose == purpose]

    def read(self) -> None:
        """Read them now."""
        self._rows = tuple(read_setting(row) for row in ModelSetting.objects.order_by("-is_default", "pk"))
        self._read_at = time.monotonic()

    def forget(self) -> None:
        """The next question reads them."""
        self._read_at = None


stored = StoredEndpoints()


def read_setting(row: ModelSetting) -> ModelEndpoint:
    """A row with its key decrypted; one whose key cannot be has a problem instead."""
    problem = key = ""
    try:
        key = decrypt(row.secret)
    except UnreadableSecretError as error:
        problem = f"the model setting {row.name!r} cannot be used: {error}"
    return ModelEndpoint(
        purpose=row.purpose,
        source=DATABASE,
        base_url=row.base_url,
        model=row.model,
        api_key=key,
        name=row.name,
        identity=row.identity or row.model,
        setting_id=row.pk,
        preset_key=row.preset,
        dims=row.dims,
        window=row.window,
        query_prompt=row.query_prompt,
        passage_prompt=row.passage_prompt,
        send_dimensions=row.send_dimensions,
        api_version=row.api_version,
        is_default=row.is_default,
        problem=problem,
    )


def environment_endpoint(purpose: str) -> ModelEndpoint | None:
    """What the environment names for a purpose; None where it names none."""
    if purpose == EMBEDDINGS:
        url, key, model = settings.RAGD_EMBED_BASE_URL, settings.RAGD_EMBED_API_KEY, settings.RAGD_EMBED_MODEL
    elif purpose == RERANK:
        url, key, model = settings.RAGD_RERANK_BASE_URL, settings.RAGD_RERANK_API_KEY, settings.RAGD_RERANK_MODEL
        key = key if url else ""
    elif purpose == JUDGE:
        url, key, model = _environment_judge()
    else:
        url, key, model = settings.RAGD_LLM_BASE_URL, settings.RAGD_LLM_API_KEY, settings.RAGD_LLM_MODEL
    if not (url or key):
        return None
    preset = chat_preset_of(url or "") if purpose in (CHAT, JUDGE) else OTHER
    dims = settings.RAGD_EMBED_DIMS if purpose == EMBEDDINGS else None
    return ModelEndpoint(
        purpose, ENVIRONMENT, url or "", model, key or "", name=model, identity=model, preset_key=preset.key, dims=dims
    )


def _environment_judge() -> tuple[str, str, str]:
    """Its own address and key; with a model of its own alone, those of answers. Nothing where none of them is set.

    A key goes only to the server that it was given for: that of answers not to another address.
    """
    url, key, model = settings.RAGD_JUDGE_BASE_URL, settings.RAGD_JUDGE_API_KEY, settings.RAGD_JUDGE_MODEL
    if not (url or key or model):
        return "", "", ""
    return (
        url or settings.RAGD_LLM_BASE_URL or "",
        key if url or key else settings.RAGD_LLM_API_KEY or "",
        model or settings.RAGD_LLM_MODEL,
    )


def embedding_endpoint(identity: str) -> ModelEndpoint | None:
    """Who serves an embedding model: the environment's endpoint for the model that it names, else the row of that
    identity, else the environment's endpoint, which may know other models too. None where nobody does."""
    own = environment_endpoint(EMBEDDINGS)
    if own is None or own.identity != identity:
        row = next((row for row in stored.of(EMBEDDINGS) if row.identity == identity), None)
        if row is not None:
            return row
    return own


def chat_endpoint(named: str = "") -> ModelEndpoint | None:
    """Who answers: the environment's endpoint, else the row that `named` is the name or the model of, else the default.

    None where no chat model is set up.
    """
    return environment_endpoint(CHAT) or _choose(stored.of(CHAT), named)


def judge_endpoint(named: str = "") -> ModelEndpoint | None:
    """Who judges as the judge "llm": the environment's judge, else a judge of the database, else who answers."""
    return environment_endpoint(JUDGE) or _choose(stored.of(JUDGE), named) or chat_endpoint(named)


def rerank_endpoints() -> list[ModelEndpoint]:
    """The default first. The environment's goes before those of the database: then it is the only one."""
    own = environment_endpoint(RERANK)
    return [own] if own else stored.of(RERANK)


def is_overridden(endpoint: ModelEndpoint) -> bool:
    """Whether the environment names another endpoint where this row of the database would serve."""
    own = environment_endpoint(endpoint.purpose)
    if endpoint.source == ENVIRONMENT or own is None:
        return False
    return endpoint.purpose != EMBEDDINGS or own.identity == endpoint.identity


def _choose(rows: Sequence[ModelEndpoint], named: str) -> ModelEndpoint | None:
    chosen = next((row for row in rows if named and named in (row.name, row.model)), None)
    return chosen or next(iter(rows), None)
