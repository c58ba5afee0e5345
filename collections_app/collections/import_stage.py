"""A collection from the file that it was exported to: checked first, built where nobody sees it, shown in one step.

While it is filled the collection is fenced like one that is being deleted, with a moment of deletion that is pushed on
with every batch. So an import that dies leaves something that maintenance removes when that moment has passed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import Any

import psycopg
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.files.uploadedfile import UploadedFile
from django.db import DataError, IntegrityError, InternalError, connection, transaction
from django.utils import timezone

from collections_app.audit import services
from collections_app.collections.deletion import purge_collection
from collections_app.collections.export_parts import Manifest, invalid_export
from collections_app.collections.export_reader import Archive, Source
from collections_app.collections.import_writer import FENCE, FIRST, ImportWriter, name_taken
from collections_app.collections.models import name_actor
from collections_app.errors import ServiceError
from collections_app.index.services import check_embedder, resolve_target, start_index_version
from collections_app.jobs.operations import OnProgress, OperationProgress, handles, request_operation, running
from collections_app.models import Collection, IndexVersion, Operation, WorkPart
from ragd.errors import InvalidInput, RagdError, UnknownCollection
from ragd.identity import check_collection_name, clean_collection_title, clean_starters
from ragd.store.placement import choose_placement
from ragd.store.store import execute
from ragd.store.tables import INSERT_STATS, IndexVersionSpec, create_partition, languages
from ragd.types import ChunkPolicy

PART_BYTES = 1_000_000
# chunks are copied past Django, which would make a DataError of psycopg's its own
UNSTORABLE = (
    AttributeError, DataError, InternalError, IntegrityError, KeyError, TypeError, ValueError, psycopg.DataError,
)  # fmt: skip


def import_collection(
    source: Source,
    *,
    name: str | None = None,
    replace: bool = False,
    embed_model: str | None = None,
    embed_dims: int | None = None,
    actor: services.Actor = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Make a collection of an export, all of it or nothing; it is seen when it is complete.

    source: a path, or a binary file that can be read again from its beginning. name: None for the exported one.
    replace: take the place of the collection of that name, which is deleted. embed_model, embed_dims: another model
    than the exported one; the collection serves with the exported vectors until an index version with it is built. No
    embedder is asked otherwise.

    Returns {"collection", "counts", "index_version_hash", "index_version": number of the one that is built or None,
    "warnings", "seconds", "replaced": whether one was}. Raises ServiceError: 422 for a file that is damaged, foreign or
    of another version, 409 for a name that is taken, 413 above RAGD_IMPORT_MAX_MB; InvalidInput for a wrong name.
    """
    with Archive(source) as archive:
        chosen = check_import_name(archive.manifest, name, replace=replace)
        with running(Operation.Kind.IMPORT, chosen, actor=actor, listener=on_progress) as progress:
            return _import_archive(
                archive, progress, replace=replace, embed_model=embed_model, embed_dims=embed_dims, actor=actor
            )


def _import_archive(
    archive: Archive,
    progress: OperationProgress,
    *,
    replace: bool,
    embed_model: str | None,
    embed_dims: int | None,
    actor: services.Actor,
) -> dict[str, Any]:
    began = time.monotonic()
    spec = read_spec(archive.manifest)
    if embed_model is not None:
        check_model(archive.manifest.values, embed_model, embed_dims)
    archive.check(lambda done, total: progress.tell("check", done, total))
    writer, before = _import(archive, progress.operation.subject, spec, progress, replace=replace, actor=actor)
    report = writer.report(replaced=before is not None)
    if before is not None:
        report["warnings"] += _purge(before)
    report |= _rebuild(writer.collection, report["warnings"], embed_model, embed_dims, actor)
    report["seconds"] = round(time.monotonic() - began, 3)
    progress.succeed(report)
    return report


def request_import(
    file: UploadedFile[Any],
    *,
    name: str | None,
    replace: bool,
    embed_model: str | None,
    embed_dims: int | None,
    actor: AbstractBaseUser,
) -> Operation:
    """Have a worker import the file, which the database stores in parts until the operation has ended.

    Raises what `import_collection` raises of the file's manifest and of the name.
    """
    source: Any = file.file
    with Archive(source) as archive:
        chosen = check_import_name(archive.manifest, name, replace=replace)
    arguments = {"replace": replace, "embed_model": embed_model, "embed_dims": embed_dims, "user": actor.pk}
    with transaction.atomic():
        operation = request_operation(Operation.Kind.IMPORT, chosen, arguments, actor=actor)
        for position, content in enumerate(file.chunks(PART_BYTES)):
            WorkPart.objects.create(kind=WorkPart.Kind.FILE, key=str(operation.pk), position=position, content=content)
    return operation


@handles(Operation.Kind.IMPORT)
def run_import(progress: OperationProgress) -> None:
    """The worker's side of `request_import`. What an earlier attempt made visible is not imported again."""
    operation = progress.operation
    arguments = dict(operation.arguments)
    arguments["actor"] = get_user_model()._default_manager.filter(pk=arguments.pop("user")).first()
    if operation.report:
        _finish(progress, **arguments)
        return
    with tempfile.TemporaryFile() as source:
        parts = WorkPart.objects.filter(kind=WorkPart.Kind.FILE, key=str(operation.pk)).order_by("position")
        for part in parts.iterator(chunk_size=1):
            source.write(part.content)
        with Archive(source) as archive:
            check_import_name(archive.manifest, operation.subject, replace=arguments["replace"])
            _import_archive(archive, progress, **arguments)


def _finish(
    progress: OperationProgress,
    *,
    replace: bool,
    embed_model: str | None,
    embed_dims: int | None,
    actor: services.Actor,
) -> None:
    """What comes after the collection is visible. An index version besides the first is the one that was asked for."""
    report = dict(progress.operation.report)
    collection = Collection.objects.live().filter(name=report["collection"]).first()
    if collection is not None:
        started = IndexVersion.objects.filter(collection=collection).exclude(number=FIRST).newest().first()
        if started is None:
            report |= _rebuild(collection, report["warnings"], embed_model, embed_dims, actor)
        else:
            report["index_version"] = started.number
    progress.succeed(report)


def check_import_name(manifest: Manifest, name: str | None, *, replace: bool) -> str:
    """The name that an import will have. Raises InvalidInput for a wrong one, ServiceError 409 for a taken one."""
    chosen = check_collection_name(name if name is not None else str(manifest.collection["name"]))
    if not replace and Collection.objects.live().filter(name=chosen).exists():
        raise name_taken(chosen)
    return chosen


def _import(
    archive: Archive,
    name: str,
    spec: IndexVersionSpec,
    progress: OperationProgress,
    *,
    replace: bool,
    actor: services.Actor,
) -> tuple[ImportWriter, Collection | None]:
    collection = make_fenced(archive.manifest, name, spec, actor)
    writer = ImportWriter(archive, collection, spec, progress)
    try:
        writer.fill()
        return writer, writer.show(replace=replace, actor=actor)
    except BaseException as error:
        purge_collection(collection)
        if isinstance(error, UNSTORABLE):
            raise invalid_export(f"the file holds what cannot be stored: {_first_line(error)}") from error
        if isinstance(error, RagdError) and not isinstance(error, UnknownCollection):
            raise invalid_export(f"the file holds what cannot be stored: {error.message}") from error
        raise


def _purge(replaced: Collection) -> list[str]:
    """Remove what the import took the place of; warnings. It is invisible by now, so one in use goes later."""
    try:
        purge_collection(replaced)
    except ServiceError as error:
        return [error.message]
    return []


def _rebuild(
    collection: Collection, warnings: list[str], model: str | None, dims: int | None, actor: services.Actor
) -> dict[str, int]:
    """Start the index version of another model: {"index_version": its number}, {} when none was asked for or it failed.

    A failure leaves the import as it is and is told as a warning.
    """
    serving = (collection.embed_model, collection.embed_dims)
    if model is None or (model, dims or collection.embed_dims) == serving:
        return {}
    try:
        started = start_index_version(collection, {"embed_model": model, "embed_dims": dims}, actor=actor)
    except (ServiceError, RagdError) as error:
        warnings.append(f"it serves with {collection.embed_model}; {model} could not be started: {error}")
        return {}
    return {"index_version": started.number}


def read_spec(manifest: Manifest) -> IndexVersionSpec:
    """By what the exported index version was built. Raises ServiceError 422 when its hash is another."""
    exported = manifest.index_version
    try:
        policy = ChunkPolicy.from_dict(exported["policy"])
        spec = IndexVersionSpec(
            str(exported["embed_model"]),
            int(exported["embed_dims"]),
            bool(exported["hybrid_enabled"]),
            str(exported["language"]),
            policy,
            "halfvec" if exported.get("vector_type") == "halfvec" else "vector",
        )
    except (InvalidInput, TypeError, ValueError) as error:
        raise invalid_export(f"the manifest's index version is not one: {error}") from None
    if spec.hash != exported["hash"]:
        raise invalid_export(
            f"the hash of the exported index version is {exported['hash']}, and what is said of it gives {spec.hash}; "
            "the manifest was changed"
        )
    same = all(manifest.collection[name] == exported[name] for name in ("embed_model", "embed_dims", "language"))
    if not same or spec.embed_dims != manifest.collection["embed_dims"]:
        raise invalid_export("the manifest's collection and its index version name different models or languages")
    if spec.language not in (known := languages(connection)):
        raise invalid_export(
            f"this server has no text search configuration {spec.language!r}; it has {', '.join(known)}. "
            "Create it in the database first"
        )
    return spec


def make_fenced(manifest: Manifest, name: str, spec: IndexVersionSpec, actor: services.Actor) -> Collection:
    """The collection that is to be filled, invisible, with the empty table of its only index version."""
    exported = manifest.collection
    with transaction.atomic():
        collection = Collection.objects.create(
            name=name,
            title=clean_collection_title(str(exported["title"])),
            description=str(exported["description"]),
            starters=clean_starters(map(str, exported["starters"])),
            embed_model=spec.embed_model,
            embed_dims=spec.embed_dims,
            hybrid_enabled=spec.hybrid_enabled,
            language=spec.language,
            vector_type=spec.vector_type,
            chunk_policy=exported["chunk_policy"],
            retention=exported["retention"],
            security=exported["security"],
            access_from=str(exported["access_from"] or ""),
            index_version=FIRST,
            deleted_at=timezone.now() + FENCE,
        )
        placement = choose_placement(connection, None)
        create_partition(connection, collection.pk, FIRST, spec.embed_dims, placement)
        stats = {"collection_id": collection.pk, "index_version": FIRST, "serving": False, "placement": placement}
        execute(connection, INSERT_STATS, stats)
        IndexVersion.objects.create(
            collection=collection,
            number=FIRST,
            hash=spec.hash,
            spec_version=manifest.index_version["spec_version"],
            embed_model=spec.embed_model,
            embed_dims=spec.embed_dims,
            hybrid_enabled=spec.hybrid_enabled,
            language=spec.language,
            vector_type=spec.vector_type,
            chunk_policy=manifest.index_version["chunk_policy"],
            policy=spec.policy.as_dict(),
            state=IndexVersion.State.SERVING,
            swapped_at=timezone.now(),
            created_by=name_actor(actor),
        )
    return collection


def check_model(manifest: Mapping[str, Any], embed_model: str, embed_dims: int | None) -> None:
    """Whether a model that is asked for can be used: it is known here and answers. Raises what says why not."""
    exported = manifest["collection"]
    like = Collection(
        embed_model=exported["embed_model"],
        embed_dims=exported["embed_dims"],
        language=exported["language"],
        chunk_policy={},
    )
    check_embedder(resolve_target(like, {"embed_model": embed_model, "embed_dims": embed_dims}))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
