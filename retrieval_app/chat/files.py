"""Files that are dropped into the chat: into the chosen collection, or into the person's own *My files*.

A file of a thread is a document of *My files* whose access list holds the thread alone. Its id begins with the thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from django import forms
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.translation import gettext

from collections_app.access.context import PERSONAL, current_access, set_access, system_access, using_access
from collections_app.access.permissions import Permission, Role, thread_principal
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection, get_collection
from collections_app.errors import ServiceError
from collections_app.http.form_fields import FilesField
from collections_app.jobs.batches import BatchProgress, batch_jobs, batch_progress
from collections_app.models import Collection, Document, IngestBatch, IngestJob, RoleGrant
from collections_app.uploads.options import IngestOptions
from collections_app.uploads.services import UploadOutcome, close_batch, find_batch, open_batch, submit_uploads
from ragd.types import RetrievePlan
from retrieval_app.models import ChatThread
from retrieval_app.search.query_pipeline import THREAD, Beside

CARDS = 12
PATIENCE_S, POLL_S = 20.0, 0.25


class FilesForm(forms.Form):
    uploads = FilesField()


@dataclass(frozen=True, slots=True)
class DroppedFiles:
    """What one drop brought. jobs: those that need attention first, at most `CARDS`. refused: what made no job."""

    collection: Collection
    progress: BatchProgress
    jobs: list[IngestJob]
    refused: list[UploadOutcome]
    thread: ChatThread | None = None

    @property
    def address(self) -> str:
        """Of the thread, or a new one that asks the collection; it shows the files."""
        query = urlencode({"collection": self.collection.name, "batch": str(self.progress.batch.pk)})
        return f"{self.thread.get_absolute_url() if self.thread else reverse('retrieval:chat')}?{query}"


def may_add_files(collections: Sequence[Collection]) -> bool:
    """Whether a drop has somewhere to go."""
    access = current_access()
    own = access.may_make_collections or settings.RAGD_OWN_FILES_MB > 0
    return own or any(access.may(Permission.WRITE, each.pk) for each in collections)


def personal_name(user: Any) -> str:
    """Of the person's own collection. Nobody else can guess it, and so have it first and read what is dropped."""
    return f"{PERSONAL}{user.pk}-{sha256(user.date_joined.isoformat().encode()).hexdigest()[:12]}"


def find_target(user: Any, writable: Sequence[Collection]) -> Collection:
    """The one of these; else the person's own collection, made where it is missing. Raises Forbidden where they may not
    make one, and those who may only ask may add no files either."""
    if len(writable) == 1:
        return writable[0]
    name = personal_name(user)
    if found := Collection.objects.live().filter(name=name).first():
        return found
    try:
        if current_access().may_make_collections or not settings.RAGD_OWN_FILES_MB:
            return create_collection(name=name, title=gettext("My files"), actor=user)
        with system_access():
            own_files = create_collection(name=name, title=gettext("My files"))
            RoleGrant.objects.create(user=user, collection_id=own_files.pk, role=Role.CURATOR)
        return own_files
    except ServiceError as error:
        if error.type != "name_taken":
            raise
    return get_collection(name)  # another drop made it meanwhile


def find_drop(name: str, batch_id: str, thread: ChatThread | None = None) -> DroppedFiles | None:
    """None without a batch, and for one that is not of the collection, or that may not be read."""
    collection = Collection.objects.live().filter(name=name).first() if batch_id else None
    try:
        return _describe(find_batch(collection, batch_id), thread=thread) if collection else None
    except ServiceError:
        return None


def add_files(user: Any, names: Sequence[str], files: Sequence[Any], thread: ChatThread | None = None) -> DroppedFiles:
    """Files into the collection of these names where it is one in which they may write, else into their own: as files
    of the thread, where there is one.

    Raises what `find_target` and `submit_uploads` raise, and ServiceError 413 beyond RAGD_OWN_FILES_MB.
    """
    writable = _writable(names)
    collection = find_target(user, writable)
    thread = None if writable else thread
    with using_access(access_of_user(user) if collection.is_personal else current_access()):  # it may be new
        if thread is None:
            outcomes = submit_uploads(collection, files, actor=user)
            batch = outcomes[0].batch
            assert batch is not None  # all are of the one that was opened for them
        else:
            batch, outcomes = _add_to_thread(collection, thread, files, user)
        batch.collection = collection
        return _describe(batch, [each for each in outcomes if each.job is None], thread)


def _add_to_thread(
    collection: Collection, thread: ChatThread, files: Sequence[Any], user: Any
) -> tuple[IngestBatch, list[UploadOutcome]]:
    set_access(current_access().of_thread(thread.pk))
    options = IngestOptions(access=(thread_principal(thread.pk),), metadata={THREAD: str(thread.pk)})
    with transaction.atomic():
        ChatThread.objects.filter(pk=thread.pk).update(has_files=True)
        batch = open_batch(collection, actor=user)  # without a label: that would name the file to others
        doc_ids = [f"{folder_of_thread(thread)}{file.name}" for file in files]
        outcomes = submit_uploads(collection, files, options, doc_ids=doc_ids, batch=batch, actor=user)
        close_batch(batch)
    return batch, outcomes


def folder_of_thread(thread: ChatThread) -> str:
    """What the ids of its files begin with."""
    return f"{THREAD}-{thread.pk}/"


def files_of_thread(thread: ChatThread | None) -> list[Document]:
    """Those that were read, by id; as whoever has the thread's access."""
    if thread is None or not thread.has_files:
        return []
    rows = Document.objects.listed().filter(collection__name__startswith=PERSONAL).in_folder(folder_of_thread(thread))
    return list(rows.select_related("collection").by_doc_id())


def search_files(thread: ChatThread, collections: Sequence[Collection], plan: RetrievePlan) -> list[Beside]:
    """The files of a thread as a collection that is searched beside these, which may hold them already."""
    own = {each.collection_id: each.collection for each in files_of_thread(thread)}
    only = replace(plan, filters=replace(plan.filters, metadata={**plan.filters.metadata, THREAD: str(thread.pk)}))
    return [Beside(collection, only) for pk, collection in own.items() if pk not in {each.pk for each in collections}]


def wait_for_files(thread: ChatThread, collections: Sequence[Collection], tell: Callable[[], None]) -> None:
    """Wait, at most `PATIENCE_S`, while files of the thread are read, and for the first of what its owner added to the
    collections. Calls `tell` where that takes time. Raises ServiceError 409 if there is no document to ask then."""
    until = time.monotonic() + PATIENCE_S
    if not _is_reading(thread, collections):
        return
    tell()
    while (reading := _is_reading(thread, collections)) and time.monotonic() < until:
        time.sleep(POLL_S)
    if reading and not Document.objects.filter(collection__in=collections).exists():
        message = gettext("Your files are still being read. Ask again in a moment.")
        raise ServiceError(message, type="files_being_read", status=409)


def _is_reading(thread: ChatThread, collections: Sequence[Collection]) -> bool:
    """Whether files are being read that the owner of the thread is likely to ask: any of the thread, and those of an
    upload of which nothing is ready yet."""
    jobs = IngestJob.objects.active()
    if thread.has_files and jobs.filter(doc_id__startswith=folder_of_thread(thread)).exists():
        return True
    ready = IngestJob.objects.filter(batch=OuterRef("batch"), state="succeeded")
    own = jobs.filter(collection__in=collections, batch__created_by=thread.user.get_username())
    return bool(own.exclude(Exists(ready)).exists())


def _describe(
    batch: IngestBatch, refused: Sequence[UploadOutcome] = (), thread: ChatThread | None = None
) -> DroppedFiles:
    (progress,) = batch_progress([batch])
    return DroppedFiles(batch.collection, progress, list(batch_jobs(batch)[:CARDS]), list(refused), thread)


def _writable(names: Sequence[str]) -> list[Collection]:
    access = current_access()
    chosen = Collection.objects.live().filter(name__in=[name for name in names if "\x00" not in name])
    return [each for each in chosen if access.may(Permission.WRITE, each.pk)]
