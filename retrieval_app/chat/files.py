"""Files that are dropped into the chat: into the chosen collection, or into the person's own *My files*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django import forms
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.collections.services import create_collection, get_collection
from collections_app.errors import ServiceError
from collections_app.http.form_fields import FilesField
from collections_app.jobs.batches import BatchProgress, batch_jobs, batch_progress
from collections_app.models import Collection, IngestBatch, IngestJob
from collections_app.uploads.services import UploadOutcome, find_batch, submit_uploads

CARDS = 12


class FilesForm(forms.Form):
    uploads = FilesField()


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """What one drop brought. jobs: those that need attention first, at most `CARDS`. refused: what made no job."""

    collection: Collection
    progress: BatchProgress
    jobs: list[IngestJob]
    refused: list[UploadOutcome]

    @property
    def address(self) -> str:
        """Of a new thread that asks the collection and shows the files."""
        query = urlencode({"collection": self.collection.name, "batch": str(self.progress.batch.pk)})
        return f"{reverse('retrieval:chat')}?{query}"


def may_add_files(collections: Sequence[Collection]) -> bool:
    """Whether a drop has somewhere to go."""
    access = current_access()
    return access.may_make_collections or any(access.may(Permission.WRITE, each.pk) for each in collections)


def find_target(user: Any, writable: Sequence[Collection]) -> Collection:
    """The one of these; else the person's own collection, made where it is missing. Raises Forbidden where they may not
    make one.

    Nobody else can guess its name, and so have it first and read what is dropped.
    """
    if len(writable) == 1:
        return writable[0]
    name = f"my-files-{user.pk}-{sha256(user.date_joined.isoformat().encode()).hexdigest()[:12]}"
    if found := Collection.objects.live().filter(name=name).first():
        return found
    try:
        return create_collection(name=name, title=gettext("My files"), actor=user)
    except ServiceError as error:
        if error.type != "name_taken":
            raise
    return get_collection(name)  # another drop made it meanwhile


def find_drop(name: str, batch_id: str) -> DroppedFiles | None:
    """None without a batch, and for one that is not of the collection, or that may not be read."""
    collection = Collection.objects.live().filter(name=name).first() if batch_id else None
    try:
        return _describe(find_batch(collection, batch_id)) if collection else None
    except ServiceError:
        return None


def add_files(user: Any, names: Sequence[str], files: Sequence[Any]) -> DroppedFiles:
    """Files into the collection of these names where it is one in which they may write, else into their own.

    Raises what `find_target` and `submit_uploads` raise.
    """
    collection = find_target(user, _writable(names))
    outcomes = submit_uploads(collection, files, actor=user)
    batch = outcomes[0].batch
    assert batch is not None  # all are of the one that was opened for them
    batch.collection = collection
    return _describe(batch, [each for each in outcomes if each.job is None])


def _describe(batch: IngestBatch, refused: Sequence[UploadOutcome] = ()) -> DroppedFiles:
    (progress,) = batch_progress([batch])
    return DroppedFiles(batch.collection, progress, list(batch_jobs(batch)[:CARDS]), list(refused))


def _writable(names: Sequence[str]) -> list[Collection]:
    access = current_access()
    chosen = Collection.objects.live().filter(name__in=[name for name in names if "\x00" not in name])
    return [each for each in chosen if access.may(Permission.WRITE, each.pk)]
