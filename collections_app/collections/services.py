"""Collections: made, changed, counted.

Distributions over a collection, for its statistics page.

Which embedding model a collection is made with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, Sum
from django.db.models.functions import TruncWeek
from django.utils import timezone

import ragd
from collections_app.access.api_keys import bind_keys
from collections_app.access.context import current_access, require, require_making, system_access
from collections_app.access.document_access import check_access_from, follow_metadata
from collections_app.access.permissions import Permission, Role
from collections_app.access.services import make_administrator
from collections_app.audit import services
from collections_app.chunks.finding_scan import check_security
from collections_app.chunks.policies import check_policy, window_of
from collections_app.collections.retention import check_retention
from collections_app.domain.formats import MEGABYTE
from collections_app.domain.rows import RowReader
from collections_app.endpoints.endpoints import embedding_endpoint, stored
from collections_app.endpoints.model_folders import first_folder, folder_paths, resolve_folder, stated_prompts
from collections_app.endpoints.model_presets import EMBEDDINGS, USUAL_DIMS
from collections_app.errors import ServiceError
from collections_app.index.stores import LOCAL_MODEL, LOCAL_MODELS, embedder_for
from collections_app.index.swap import ensure_serving, redefine_serving
from collections_app.models import Chunk, ChunkOverlay, Collection, Document, DocumentRevision, IngestJob, Upload
from ragd.errors import DimensionMismatch, EmbedderError, InvalidInput, UnknownCollection
from ragd.identity import UNSEEN, can_be_stored, check_collection_name, clean_collection_title, clean_starters
from ragd.models import multilingual_e5
from ragd.models.openai_client import public_address
from ragd.models.prompts import split_identity
from ragd.normalization import normalize
from ragd.store.store import HALFVEC_INDEX_DIMS
from ragd.store.tables import create_collection as create_rows
from ragd.store.tables import languages
from ragd.text.languages import AUTO

BINS = 24
GROWTH_WEEKS = 26
TYPES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Histogram:
    """counts[i] chunks have from i * step up to (i + 1) * step words; `highest` is the longest."""

    counts: tuple[int, ...]
    step: int
    highest: int

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """(fewest words, most words, chunks) of each bin that is not empty."""
        bins = ((index * self.step, (index + 1) * self.step - 1, count) for index, count in enumerate(self.counts))
        return [row for row in bins if row[2]]


def draw_lengths(lengths: Iterable[tuple[int, int, int]]) -> Histogram | None:
    """How long the chunks are, in words, in 24 bins from 0 to the longest; None without chunks. lengths: see
    `ragd.Store.count_lengths`."""
    by_length = {length: total for length, total, _ in lengths}
    if not by_length:
        return None
    highest = max(by_length)
    step = highest // BINS + 1
    bins = Counter[int]()
    for length, total in by_length.items():
        bins[length // step] += total
    return Histogram(tuple(bins[index] for index in range(BINS)), step, highest)


def count_documents(collection: Collection) -> dict[str, Any]:
    """Documents by state and by type (the twelve most frequent), and what is kept beside them."""
    documents = Document.objects.filter(collection=collection)
    types = documents.order_by().values_list("media_type").annotate(total=Count("pk")).order_by("-total", "media_type")
    uploads = Upload.objects.filter(collection=collection).aggregate(files=Count("pk"), size=Sum("size_bytes"))
    return {
        "documents_by_state": documents.count_states(),
        "documents_by_type": dict(types[:TYPES_SHOWN]),
        "sources": uploads["files"],
        "source_bytes": uploads["size"] or 0,
        "revisions": DocumentRevision.objects.filter(collection=collection).count(),
        "overlays": ChunkOverlay.objects.filter(collection=collection).count(),
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """Documents that were there at the end of each week (by when they were made), oldest first."""

    weeks: tuple[datetime, ...]
    totals: tuple[int, ...]

    @property
    def rows(self) -> list[tuple[datetime, int, int]]:
        """(beginning of the week, documents made in it, documents at its end)."""
        before = (self.totals[0], *self.totals)
        made = [total - earlier for total, earlier in zip(self.totals, before, strict=False)]
        return list(zip(self.weeks, made, self.totals, strict=True))


def count_growth(collection: Collection, now: datetime | None = None) -> Growth:
    """The last 26 weeks. Of documents that are gone nothing is counted."""
    until = now or timezone.now()
    last = (until - timedelta(days=until.weekday())).replace(hour=0, minute=0, second=0, microsecond=0)
    weeks = tuple(last - timedelta(weeks=back) for back in reversed(range(GROWTH_WEEKS)))
    documents = Document.objects.filter(collection=collection)
    total = documents.filter(created_at__lt=weeks[0]).count()
    made = dict(
        documents.filter(created_at__gte=weeks[0])
        .order_by()
        .annotate(week=TruncWeek("created_at"))
        .values_list("week")
        .annotate(total=Count("pk"))
    )
    totals = []
    for week in weeks:
        total += made.get(week, 0)
        totals.append(total)
    return Growth(weeks, tuple(totals))


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


CHANGEABLE = (
    "title", "description", "starters", "chunk_policy", "retention", "security", "hybrid_enabled", "language",
    "open_role", "access_from",
)  # fmt: skip
DESCRIPTION_MAX_CHARS = 2000
_collections = RowReader(Collection, "c")
LIVE_NAMED = "c.deleted_at IS NULL AND c.name = %(name)s"


def check_quota(collection: Collection, size: int) -> None:
    """ServiceError 413 where one who may only ask would have more than RAGD_OWN_FILES_MB in their own collection."""
    most = settings.RAGD_OWN_FILES_MB
    if not collection.is_personal or current_access().may_make_collections:
        return
    with system_access():
        total = Upload.objects.filter(collection=collection).aggregate(size=Sum("size_bytes"))["size"] or 0
        texts = Document.objects.filter(collection=collection, source_hash="")
        total += texts.aggregate(size=Sum("size_chars"))["size"] or 0
    if total + size > most * MEGABYTE:
        raise ServiceError(
            f"your own files may take {most} MB together; there are {total / MEGABYTE:.1f} MB, and these have"
            f" {size / MEGABYTE:.1f} MB more. Delete some, or ask an administrator for more (RAGD_OWN_FILES_MB)",
            type="quota_exceeded",
            status=413,
        )


def get_collection(name: str) -> Collection:
    """The live collection of that name. Raises UnknownCollection."""
    record = _collections.find(LIVE_NAMED, {"name": name}) if can_be_stored(name) else None
    if record is None:
        raise UnknownCollection(f"there is no collection {name!r}; GET /v1/collections lists them", field="collection")
    return record


def create_collection(
    *,
    name: str,
    hybrid_enabled: bool = True,
    embed_model: str | None = None,
    embed_dims: int | None = None,
    chunk_policy: Mapping[str, Any] | None = None,
    language: str | None = None,
    title: str = "",
    description: str = "",
    starters: Iterable[str] = (),
    open_role: str = "",
    placement: str | None = None,
    actor: services.Actor = None,
) -> Collection:
    """A new empty collection. What is not given is the server's default; a new index version can change it later.

    open_role: what everybody who is logged in is in it (`Role`); "": private to its administrators and those who are
    granted a role. Whoever makes it administers it. placement: where its chunks are (`ragd.store.placement`).

    Raises ServiceError 409 for a taken name, InvalidInput, DimensionMismatch.
    """
    require_making()
    stored = check_collection_name(name)
    model, dims = resolve_model(embed_model, embed_dims)
    explicit = check_policy(chunk_policy, embedder_for(model, dims).window)
    try:
        with system_access(), transaction.atomic():
            pk = create_rows(
                connection,
                name=stored,
                embed_model=model,
                embed_dims=dims,
                hybrid_enabled=hybrid_enabled,
                language=language or AUTO,
                placement=placement,
            )
            said = {
                "title": clean_collection_title(title),
                "description": check_description(description),
                "starters": clean_starters(starters),
            }
            Collection.objects.filter(pk=pk).update(chunk_policy=explicit, open_role=check_open_role(open_role), **said)
            collection = Collection.objects.get(pk=pk)
            bind_keys(collection, actor=actor)
            make_administrator(actor, collection)
            services.record(
                actor,
                [collection],
                services.ADDITION,
                f"made with {model}, {dims} dimensions",
                after={
                    "name": stored,
                    "embed_model": model,
                    "embed_dims": dims,
                    "hybrid_enabled": hybrid_enabled,
                    "language": language or AUTO,
                    "chunk_policy": explicit,
                }
                | said,
            )
    except IntegrityError:
        raise ServiceError(
            f"there is a collection {stored!r} already; choose another name, or use that one",
            type="name_taken",
            field="name",
        ) from None
    return collection


def update_collection(
    collection: Collection, *, changes: Mapping[str, Any], actor: services.Actor = None
) -> Collection:
    """Change title, description, starters, retention, security and chunk_policy (for what comes from now on).

    While it is empty, the rest too. A new chunk_policy, retention or security takes the place of what was stated.
    """
    require(Permission.WRITE, collection.pk)
    if unknown := set(changes) - set(CHANGEABLE):
        name = sorted(unknown)[0]
        raise InvalidInput(f"{name} cannot be changed; what can is {', '.join(CHANGEABLE)}", field=name)
    with transaction.atomic():
        current = Collection.objects.select_for_update().filter(pk=collection.pk, deleted_at__isnull=True).first()
        if current is None:
            raise UnknownCollection(f"collection {collection.name!r} was deleted", field="collection")
        cleaned = {name: _check_change(current, name, value) for name, value in changes.items()}
        changed = [name for name, value in cleaned.items() if value != getattr(current, name)]
        before = {name: getattr(current, name) for name in changed}
        for name in changed:
            setattr(current, name, cleaned[name])
        if changed:
            current.save(update_fields=[*changed, "updated_at"])
            if not Chunk.objects.of(current).exists():
                redefine_serving(current)
            services.record(
                actor,
                [current],
                services.CHANGE,
                f"changed {', '.join(changed)}",
                before=before,
                after={name: cleaned[name] for name in changed},
            )
        if "access_from" in changed:
            follow_metadata(current)
    return current


def _check_change(collection: Collection, name: str, value: Any) -> Any:
    """The value as it is kept."""
    if name == "title":
        return clean_collection_title(value)
    if name == "description":
        return check_description(value)
    if name == "starters":
        return clean_starters(value)
    if name == "retention":
        return check_retention(value)
    if name == "security":
        return check_security(value)
    if name == "open_role":
        require(Permission.ADMINISTER, collection.pk)
        return check_open_role(value)
    if name == "access_from":
        key = check_access_from(value)
        if key != collection.access_from:
            require(Permission.ADMINISTER, collection.pk)  # it decides over documents that a curator may not read
        return key
    if name == "chunk_policy":
        return check_policy(value, window_of(collection))
    if value == getattr(collection, name):
        return value
    if Chunk.objects.of(collection).exists():
        raise ServiceError(
            f"{name} can be changed only while the collection is empty, because its index is built with it; "
            f"build a new index version of it instead (POST /v1/collections/{collection.name}/index-versions)",
            type="not_empty",
            field=name,
        )
    if name == "language" and value not in (known := languages(connection)):
        raise InvalidInput(f"language must be one of {', '.join(known)}, not {value!r}", field="language")
    return value


def check_open_role(role: str) -> str:
    """A role, or "" for a private collection. Raises InvalidInput."""
    if role and role not in Role.values:
        raise InvalidInput(
            f"open_role must be one of {', '.join(Role.values)}, or empty for a private collection, not {role!r}",
            field="open_role",
        )
    return role


def check_description(text: str) -> str:
    """The description in normalized form."""
    cleaned = normalize(text)
    if len(cleaned) > DESCRIPTION_MAX_CHARS:
        raise InvalidInput(
            f"description must have at most {DESCRIPTION_MAX_CHARS} characters; this one has {len(cleaned)}",
            field="description",
        )
    return cleaned


def collection_statistics(collection: Collection) -> dict[str, Any]:
    """documents, chunks, tokens (words), bytes on disk, disabled chunks, the index's state, and jobs by state.

    And the index version that serves with its hash, its last measured recall, documents by state and type, what is kept
    beside them, lengths of chunks and growth over the last weeks.
    """
    opened = ragd.Store(connection, collection.pk, exact_threshold=settings.RAGD_EXACT_THRESHOLD)
    lengths = opened.count_lengths()
    store, histogram = opened.statistics(lengths), draw_lengths(lengths)
    building = IngestJob.objects.active().filter(collection=collection, kind=IngestJob.Kind.BUILD_INDEX).exists()
    if building and store["vector_index"] != "ready":
        store["vector_index"] = "building"
    jobs = count_jobs([collection.pk])
    serving = ensure_serving(collection)
    recall = serving.measurements.get("recall")
    return (
        store
        | {"jobs": jobs.get(collection.pk, {}), "index_version": serving.number, "index_version_hash": serving.hash}
        | {"recall": recall["plain"]["mean"] if recall else None}
        | count_documents(collection)
        | {"chunk_lengths": None if histogram is None else asdict(histogram)}
        | {"growth": [{"week": week.date(), "documents": total} for week, _, total in count_growth(collection).rows]}
    )


def count_jobs(collection_ids: Iterable[int]) -> dict[int, dict[str, int]]:
    """collection id -> state -> how many jobs; one query."""
    rows = (
        IngestJob.objects.filter(collection_id__in=list(collection_ids))
        .order_by()
        .values_list("collection_id", "state")
        .annotate(total=Count("pk"))
    )
    counts: dict[int, dict[str, int]] = {}
    for collection_id, state, total in rows:
        counts.setdefault(collection_id, {})[state] = total
    return counts
