"""The one bridge from a Collection to the library's Store; the embedders and rerankers of this process.

Retrieval from a read-only copy of the database, where DATABASE_REPLICA_URL names one.

The primary takes over whenever the copy does not answer, lags too far behind, or does not know the collection yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connections,
    transaction,
)
from psycopg import IsolationLevel
from psycopg.errors import UndefinedTable

import ragd
from collections_app.domain.rows import Prepared
from collections_app.endpoints.endpoints import ModelEndpoint, embedding_endpoint, rerank_endpoints
from collections_app.endpoints.model_folders import folder_for, is_folder_model, prompts_with, sparse_paths
from collections_app.models import Collection
from ragd.errors import EmbedderError, IndexVersionChanged, RerankerError, UnknownCollection
from ragd.models.embedding import OPENAI_WINDOW, LocalEmbedder, LocalTokenEmbedder, OpenAIEmbedder, Sizes
from ragd.models.folder_embedder import use_folders
from ragd.models.graph_folder import available_cores
from ragd.models.late_interaction import LateInteraction
from ragd.models.multilingual_e5 import MultilingualE5Embedder
from ragd.models.openai_client import RetryPolicy, Server
from ragd.models.prompts import PromptedEmbedder, Prompts, split_identity
from ragd.models.rerank_endpoint import EndpointReranker
from ragd.models.reranking import AnyReranker, CrossEncoder
from ragd.store.store import Connection
from ragd.types import Embedder, Vector

LOCAL_MODEL = "all-MiniLM-L6-v2"
LOCAL_DIMS = 384
LOCAL_MODELS = {LOCAL_MODEL: LOCAL_DIMS, MultilingualE5Embedder.model: MultilingualE5Embedder.dims}  # in this process
WORKER_RETRIES = 1
BUILTIN, ENDPOINT, CROSS_ENCODER = "builtin", "endpoint", "cross-encoder"
RESERVED_NAMES = frozenset((BUILTIN, ENDPOINT, CROSS_ENCODER))  # of rerankers


use_folders(sparse_paths)  # every store finds its sparse encoder by name


def open_store(collection: Collection, *, over: Connection | None = None) -> ragd.Store:
    """The store of the index version that serves a collection now, with that one's embedder. over: another connection
    than Django's own.

    `collection` may have been read before a swap: only its id counts. Raises UnknownCollection when it is deleted.
    """
    connection = over or connections[DEFAULT_DB_ALIAS]
    store = ragd.Store(
        connection, collection.pk, exact_threshold=settings.RAGD_EXACT_THRESHOLD, rerankers=open_rerankers()
    )
    store.use_embedder(embedder_for(store.collection.embed_model, store.collection.embed_dims))
    return store


@contextmanager
def reading(using: str = "default") -> Iterator[None]:
    """A transaction whose statements all see one state of the database, so that a search reads the rows that it ranked.

    Inside another transaction it is a part of that one, and each statement sees what is committed by then.
    """
    database = connections[using]
    database.ensure_connection()
    driver = None if database.in_atomic_block else database.connection
    if driver is not None:
        driver.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with transaction.atomic(using=using):
            yield
    finally:
        if driver is not None and not driver.closed:
            driver.isolation_level = None


def embedder_for(model: str, dims: int, with_tokens: bool = False) -> Embedder:
    """The embedder of that name: a model of this process by its own, one with a checksum from its folder, any other at
    the endpoint that serves it, with the prompts that its name ends with the digest of.

    with_tokens: a TokenEmbedder where the model can be one. Without an endpoint it is an AbsentEmbedder: no text leaves
    a machine unasked. It never fails: a model that is not there says so when it is asked for a vector.
    """
    if model == LOCAL_MODEL:
        return _local_token_embedder() if with_tokens else _local_embedder()
    if model == MultilingualE5Embedder.model:
        return MultilingualE5Embedder(threads=_local_threads())
    if is_folder_model(model):
        return folder_for(model, dims, _local_threads())
    endpoint = embedding_endpoint(model)
    if endpoint is None or endpoint.problem:
        return AbsentEmbedder(model, dims, problem=endpoint.problem if endpoint else "")
    name, digest = split_identity(model)
    if endpoint.setting_id is None:
        prompts = prompts_with(digest)
    else:
        name, prompts = endpoint.model, Prompts(endpoint.query_prompt, endpoint.passage_prompt)
    if prompts is None or prompts.digest != digest:
        return AbsentEmbedder(
            model,
            dims,
            problem=f"the vectors of {model!r} were made with prompts of the digest {digest or 'none'}, and this server"
            " has others; state those again (RAGD_EMBED_QUERY_PROMPT, RAGD_EMBED_PASSAGE_PROMPT, or the page"
            " Models), or build a new index version",
        )
    inner = open_embedder(endpoint, name, dims)
    return PromptedEmbedder(inner, prompts, model) if prompts else inner


@lru_cache(maxsize=1)
def _local_embedder() -> LocalEmbedder:
    return LocalEmbedder(threads=_local_threads())


@lru_cache(maxsize=1)
def _local_token_embedder() -> LocalTokenEmbedder:
    return LocalTokenEmbedder(threads=_local_threads())


_TOKEN_READERS: dict[str, Callable[[int], bool]] = {}


def register_token_reader(name: str, reads: Callable[[int], bool]) -> None:
    """Ask this too from now on: whether a collection, by its id, is reranked by the built-in reranker. A second of the
    name replaces it."""
    _TOKEN_READERS[name] = reads


def stores_tokens(collection_id: int, model: str) -> bool:
    """Whether chunks of a collection under this model are stored with their token vectors: where the encoder that makes
    them makes the vectors too, and somebody is to read them."""
    return model == LOCAL_MODEL and any(reads(collection_id) for reads in _TOKEN_READERS.values())


def open_embedder(endpoint: ModelEndpoint, model: str, dims: int) -> OpenAIEmbedder:
    """A new one, which costs nothing: the connections are kept by `open_client`. model: as the provider is asked."""
    preset = endpoint.preset
    return OpenAIEmbedder(
        model,
        dims,
        Server(endpoint.address, endpoint.api_key or None, preset.key_header),
        policy=_patience(),
        sizes=Sizes(
            batch_size=min(settings.RAGD_EMBED_BATCH_SIZE, preset.batch_size), window=endpoint.window or OPENAI_WINDOW
        ),
        send_dimensions=endpoint.send_dimensions,
        form=preset.form,
    )


def _patience() -> RetryPolicy:
    """How long one batch is tried. A worker soon lets its job wait instead, so that other work is not held up."""
    timeout_s = settings.RAGD_EMBED_TIMEOUT_S
    if settings.PROCESS != "worker":
        return RetryPolicy(timeout_s=timeout_s)
    return RetryPolicy(WORKER_RETRIES, timeout_s=timeout_s, deadline_s=timeout_s * (WORKER_RETRIES + 1))


@dataclass(frozen=True, slots=True)
class AbsentEmbedder:
    """Stands in for a model at an endpoint that is not set up. Asked for a vector it raises EmbedderError."""

    model: str
    dims: int
    window: int | None = OPENAI_WINDOW
    system: str = "openai"
    problem: str = ""

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        if not texts:
            return []
        raise EmbedderError(
            self.problem
            or f"the model {self.model!r} needs an embedding endpoint, and none is set up: add it on the page Models,"
            f" set EMBED_BASE_URL or EMBED_API_KEY and start again, or build a new index version with {LOCAL_MODEL},"
            " which runs here",
            kind="not_configured",
            retryable=False,
        )

    def embed_query(self, text: str) -> Vector:
        return self.embed([text])[0]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def open_rerankers() -> Mapping[str, AnyReranker]:
    """What a plan may name: "builtin" always; "cross-encoder" where a folder is set up; "endpoint", the default of the
    reranking endpoints, and those of the database by their names."""
    rerankers: dict[str, AnyReranker] = {BUILTIN: _builtin_reranker()}
    endpoints = rerank_endpoints()
    for endpoint in endpoints:
        if endpoint.setting_id is not None:
            rerankers[endpoint.name] = open_reranker(endpoint, settings.RAGD_RERANK_TIMEOUT_S)
    if endpoints:
        rerankers[ENDPOINT] = open_reranker(endpoints[0], settings.RAGD_RERANK_TIMEOUT_S)
    if settings.RAGD_CROSS_ENCODER_PATH:
        rerankers[CROSS_ENCODER] = _cross_encoder(settings.RAGD_CROSS_ENCODER_PATH)
    return rerankers


@lru_cache(maxsize=1)
def _builtin_reranker() -> LateInteraction:
    return LateInteraction(threads=_local_threads())


@lru_cache(maxsize=2)
def _cross_encoder(path: str) -> CrossEncoder:
    return CrossEncoder(path, threads=_local_threads() or available_cores())


@lru_cache(maxsize=16)
def open_reranker(endpoint: ModelEndpoint, timeout_s: float) -> AnyReranker:
    """One for each state of an endpoint: it learns which form of request its server wants."""
    if endpoint.problem:
        return AbsentReranker(endpoint.name, endpoint.problem)
    preset = endpoint.preset
    return EndpointReranker(
        Server(endpoint.address, endpoint.api_key or None, preset.key_header),
        endpoint.model,
        policy=RetryPolicy(3, timeout_s=timeout_s, deadline_s=timeout_s),
        gives_logits=preset.gives_logits,
        wants_texts=preset.wants_texts,
    )


@dataclass(frozen=True, slots=True)
class AbsentReranker:
    """Stands in for a reranker that cannot be asked. Asked for scores it raises RerankerError."""

    name: str
    problem: str
    scores_are_probabilities: bool = True

    def score(self, query: str, texts: list[str]) -> Sequence[float]:
        raise RerankerError(self.problem)


def _local_threads() -> int | None:
    """The worker's processes share the cores; anything else computes one query at a time and takes them all."""
    if settings.PROCESS != "worker":
        return None
    processes: int = settings.RAGD_WORKER_PROCESSES
    return max(1, available_cores() // processes)


log = logging.getLogger(__name__)

REPLICA = "replica"
CHECK_EVERY_S = 1.0
BACK_OFF_S = 10.0

# A standby that has replayed all that it received is level, but only while it receives.
LAG = """
SELECT pg_is_in_recovery(),
       CASE
           WHEN NOT pg_is_in_recovery() THEN 0
           WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() AND EXISTS (SELECT 1 FROM pg_stat_wal_receiver)
               THEN 0
           ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0)
       END::double precision
"""

Found = TypeVar("Found")


@dataclass
class _ReplicaHealth:
    """What this process knows of the replica: usable or not, and when to look again (time.monotonic)."""

    usable: bool = True
    reason: str = ""
    look_at: float = 0.0


_health = _ReplicaHealth()


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """lag_s: seconds behind the primary, None when it does not answer. reason: why it is not used; "" when it is."""

    state: Literal["ready", "behind", "silent"]
    lag_s: float | None
    reason: str


def has_replica() -> bool:
    return REPLICA in settings.DATABASES


def read_store(
    collection: Collection,
    read: Callable[[ragd.Store], Found],
    *,
    without: Callable[[str], object] = lambda reason: None,
) -> Found:
    """read(store) in a read transaction: over the replica when it can be used, else over the primary.

    `read` may run twice, so it must change nothing. Raises what `read` raises over the primary. without: told why a
    replica that there is does not answer.
    """
    if has_replica() and _is_usable():
        try:
            return _read(collection, read, REPLICA)
        except (OperationalError, InterfaceError) as error:
            _back_off(f"it failed: {error}", BACK_OFF_S)
        except UnknownCollection:
            log.info("the replica does not have collection %r yet; the primary answers", collection.name)
    if has_replica() and not _health.usable:
        without(_health.reason)
    return _read(collection, read, DEFAULT_DB_ALIAS)


def _read(collection: Collection, read: Callable[[ragd.Store], Found], alias: str) -> Found:
    """Once more when the index version that served at the beginning was swapped out and dropped before the end."""
    try:
        return _read_once(collection, read, alias)
    except (IndexVersionChanged, ProgrammingError) as error:
        if isinstance(error, ProgrammingError) and not isinstance(error.__cause__, UndefinedTable):
            raise
        return _read_once(collection, read, alias)


def _read_once(collection: Collection, read: Callable[[ragd.Store], Found], alias: str) -> Found:
    with reading(alias):
        return read(open_store(collection, over=Prepared(connections[alias])))


def _is_usable() -> bool:
    """Looked up once a second, so that a lag ends soon; after a failure, once in ten."""
    now = time.monotonic()
    if now >= _health.look_at:
        state = replica_state()
        if state.reason:
            _back_off(state.reason, BACK_OFF_S if state.state == "silent" else CHECK_EVERY_S)
        else:
            _health.usable, _health.look_at = True, now + CHECK_EVERY_S
    return _health.usable


def _back_off(reason: str, seconds: float) -> None:
    if _health.usable:
        log.warning("the replica is left out, the primary answers: %s", reason)
    _health.usable, _health.look_at, _health.reason = False, time.monotonic() + seconds, reason
    connections[REPLICA].close_if_unusable_or_obsolete()


def replica_state() -> ReplicaState:
    """Asks the replica how far behind it is."""
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(LAG)
            _, lag_s = cursor.fetchone()
    except Error as error:
        return ReplicaState("silent", None, f"it does not answer: {str(error).strip()}")
    if lag_s > settings.RAGD_REPLICA_MAX_LAG_S:
        reason = f"it is {lag_s:.1f} s behind, more than {settings.RAGD_REPLICA_MAX_LAG_S:g} (RAGD_REPLICA_MAX_LAG_S)"
        return ReplicaState("behind", lag_s, reason)
    return ReplicaState("ready", lag_s, "")
