"""What ragd/schema.sql holds: Collection, Document, Chunk and ApiKey mirror it column by column and are unmanaged."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models import BigIntegerField, Count, Exists, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Collate, JSONObject, Length
from django.db.models.sql.datastructures import BaseTable
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy
from pgvector.django import SparseVectorField, VectorField

from collections_app.access.context import PERSONAL
from collections_app.access.models import EVERYTHING, CollectionScope
from collections_app.access.permissions import ADMINISTRATORS, EVERYBODY, Permission
from collections_app.chunks.overlays import Limits
from ragd.conditions import Condition
from ragd.readers.types import COPYING_RESTRICTED
from ragd.search.conditions import document_condition_sql
from ragd.store.store import partition_name

NO_TOTALS = {"documents": 0, "chunks": 0}


class CollectionQuerySet(QuerySet["Collection"]):
    def live(self) -> CollectionQuerySet:
        """Neither in the trash nor being deleted."""
        return self.filter(deleted_at__isnull=True)

    def trashed(self, before: datetime) -> CollectionQuerySet:
        """Those that came into the trash before that moment and can be restored."""
        return self.filter(deleted_at__lte=before, trash__isnull=False)

    def allowed_to(self, scope: CollectionScope) -> CollectionQuerySet:
        return self.filter(scope.by_id("pk"))

    def by_name(self) -> CollectionQuerySet:
        return self.order_by("name")

    def with_counts(self) -> CollectionQuerySet:
        """Adds totals ({"documents", "chunks"}), active_jobs and failed_jobs, in one query."""
        documents = Document.objects.filter(collection=OuterRef("pk")).order_by().values("collection")
        totals = documents.annotate(totals=JSONObject(documents=Count("pk"), chunks=Sum("chunk_count")))
        every_job: Any = apps.get_model("collections_app", "IngestJob")._default_manager
        jobs = every_job.filter(collection=OuterRef("pk")).order_by().values("collection")
        return self.annotate(
            totals=Coalesce(Subquery(totals.values("totals")), Value(NO_TOTALS, models.JSONField())),
            active_jobs=_count(jobs.active().annotate(total=Count("pk"))),
            failed_jobs=_count(jobs.troubled().annotate(total=Count("pk"))),
        )


def _count(rows: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(rows.values("total")[:1]), 0, output_field=BigIntegerField())


class Collection(models.Model):
    """A set of documents under one embedding model. `index_version` is the number of the one that serves.

    retention: what is stated of {"revisions": earlier ones kept per document, "runs_days": days that runs are kept,
    "deleted_days": days that deleted documents are kept}; what is not stated is the server's.
    security: what is stated of {"action": "flag", "redact" or "refuse", "min_score": 0 to 100 from which it holds,
    "allow_overrides": bool}; {} is flag: findings are recorded and nothing else happens. open_role: the role that
    everybody who is logged in has in it, "" for none: then it is private to those who were granted a role.
    access_from: the key of metadata whose value names the groups and users that may read a document, "" for none.
    title: what people call it, "" for its name. starters: questions to begin with. trash: None where it is not there,
    else {"by": who deleted it, "rows", "links": what went from other tables (`deletion.trash_collection`)}.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(db_collation="C")
    title = models.TextField(default="", blank=True, db_default="")
    description = models.TextField(default="", blank=True)
    embed_model = models.TextField()
    embed_dims = models.IntegerField()
    vector_type = models.TextField(default="vector")
    hybrid_enabled = models.BooleanField(default=True)
    language = models.TextField(default="english")
    chunk_policy = models.JSONField(default=dict, blank=True)
    index_version = models.IntegerField(default=1)
    retention = models.JSONField(default=dict, blank=True)
    security = models.JSONField(default=dict, blank=True)
    starters = ArrayField(models.TextField(), default=list, blank=True, db_default=[])
    open_role = models.TextField(default="", blank=True, db_default="")
    access_from = models.TextField(default="", blank=True, db_default="")
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)
    trash: models.JSONField[Any, Any] = models.JSONField(null=True, editable=False)

    objects = CollectionQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "collections"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def label(self) -> str:
        """What people call it."""
        return self.title or self.name

    @property
    def is_personal(self) -> bool:
        """The files of one person and of their threads."""
        return self.name.startswith(PERSONAL)

    @property
    def chunks_table(self) -> str:
        """The table of the chunks that serve."""
        return partition_name(self.pk, self.index_version)


def collection_choices(collections: Iterable[Collection]) -> list[tuple[str, str]]:
    """(name, display name) in the order given; the name behind a display name that several have."""
    rows = list(collections)
    times = Counter(each.label for each in rows)
    return [(each.name, each.label if times[each.label] == 1 else f"{each.label} ({each.name})") for each in rows]


FOLDER_OF_THREAD = re.compile(r"\Athread-[0-9a-f-]{36}/")
UNKNOWN_LANGUAGE = "unknown"


def name_file(doc_id: str) -> str:
    """The id, without what that of a file of a thread begins with."""
    return FOLDER_OF_THREAD.sub("", doc_id)


def open_access() -> list[int]:
    """Everybody who may read the collection may read it."""
    return [ADMINISTRATORS, EVERYBODY]


DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")


class DocumentQuerySet(QuerySet["Document"]):
    def dates_of(self, collection_id: int, doc_ids: Iterable[str]) -> dict[str, str]:
        """doc_id -> YYYY-MM-DD of those that have one: what people say ("date" of their metadata), else when the file
        says that it was changed or made."""
        rows = self.filter(collection_id=collection_id, doc_id__in=list(doc_ids)).values_list(
            "doc_id", "metadata__date", "file_metadata__modified_at", "file_metadata__created_at"
        )
        days = (
            (doc_id, next((day for each in dates if (day := DAY.match(str(each)))), None)) for doc_id, *dates in rows
        )
        return {doc_id: day[0] for doc_id, day in days if day}

    def listed(self) -> DocumentQuerySet:
        """Without the text and the maps over it: what a list needs."""
        return self.defer("text", "page_map", "cell_map", "segments")

    def with_original(self) -> DocumentQuerySet:
        """Adds has_original: whether the file that it was made from is stored."""
        files: Any = apps.get_model("collections_app", "Upload")._default_manager
        same = {name: OuterRef(name) for name in ("collection", "doc_id")}
        return self.annotate(has_original=Exists(files.filter(**same, sha256=OuterRef("source_hash"))))

    def delete(self) -> tuple[int, dict[str, int]]:
        """Without the texts: Django reads what it deletes where other rows point at it."""
        return super(DocumentQuerySet, self.listed()).delete()

    delete.queryset_only = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]

    def newest(self) -> DocumentQuerySet:
        return self.order_by("-updated_at", "doc_id")

    def by_doc_id(self) -> DocumentQuerySet:
        return self.order_by("doc_id")

    def matching(self, words: str) -> DocumentQuerySet:
        """Whose id, title or source contains the words; blank words match all."""
        requested = unicodedata.normalize("NFC", words.replace("\x00", "").strip())
        if not requested:
            return self
        # doc_id is collated "C", whose upper() knows ASCII only
        rows = self.alias(folded_id=Collate("doc_id", "default"))
        return rows.filter(
            Q(folded_id__icontains=requested) | Q(title__icontains=requested) | Q(source__icontains=requested)
        )

    def of_access(self, access: str) -> DocumentQuerySet:
        """ "restricted" to some of those who may read the collection, or "open"; "" is both."""
        if not access:
            return self
        everybody = Q(access__contains=[EVERYBODY])
        return self.filter(everybody) if access == "open" else self.exclude(everybody)

    def tagged(self, tags: Iterable[str]) -> DocumentQuerySet:
        """Carrying every one of the tags."""
        requested = [tag.replace("\x00", "").strip() for tag in tags]
        return self.filter(tags__contains=requested) if requested else self

    def in_folder(self, folder: str) -> DocumentQuerySet:
        """Whose id begins with the folder, which ends with a slash; "" for all."""
        # "/" is followed by "0" in the collation of doc_id
        return self.filter(doc_id__gte=folder, doc_id__lt=f"{folder[:-1]}0") if folder else self

    def in_state(self, state: str) -> DocumentQuerySet:
        """present (not archived), enabled, disabled, archived, or any."""
        if state == "any":
            return self
        return self.exclude(state=Document.State.ARCHIVED) if state == "present" else self.filter(state=state)

    def count_states(self) -> dict[str, int]:
        """How many are in each state."""
        counts = dict(self.order_by().values_list("state").annotate(total=Count("pk")))
        return {state: counts.get(state, 0) for state in Document.State.values}

    def in_language(self, language: str) -> DocumentQuerySet:
        """In that language (ISO 639-1); "unknown": in none that is known; "" for all."""
        if not language:
            return self
        return self.filter(language="" if language == UNKNOWN_LANGUAGE else language.replace("\x00", ""))

    def satisfying(self, condition: Condition | None) -> DocumentQuerySet:
        """That pass a typed filter; None for all. Raises InvalidInput for a field of chunks alone."""
        if condition is None:
            return self
        sql, named = document_condition_sql(condition)
        params: list[Any] = []

        def place(found: re.Match[str]) -> str:
            params.append(named[found[1]])
            return "%s"

        positional = re.sub(r"%\((\w+)\)s", place, sql)
        chosen = f"SELECT id FROM documents WHERE {positional}"  # noqa: S608  (values are parameters)
        return self.filter(pk__in=RawSQL(chosen, params))  # noqa: S611  (as above)

    def of_type(self, media_type: str) -> DocumentQuerySet:
        """Of that media type; "" for all."""
        return self.filter(media_type=media_type.replace("\x00", "")) if media_type else self


class Document(models.Model):
    """One document of a collection under the caller's own id, with the normalized text that its chunks slice.

    state: one that is disabled is kept and not retrieved, one that is archived is read-only too. chunk_policy: the
    whole policy that made the chunks; chunk_policy_stated: its fields that were stated for this document alone.
    language: ISO 639-1 code of the text, "" unknown; language_stated: what somebody said it is, "" nobody did.
    metadata: what callers and people say; chunks have it, and filters read it. file_metadata: what its file says.
    """

    class State(models.TextChoices):
        ENABLED = "enabled", gettext_lazy("Enabled")
        DISABLED = "disabled", gettext_lazy("Disabled")
        ARCHIVED = "archived", gettext_lazy("Archived")

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.CASCADE, related_name="documents")
    doc_id = models.TextField(db_collation="C")
    title = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    file_metadata = models.JSONField(default=dict, blank=True, db_default={})
    language = models.TextField(default="", blank=True, db_default="")
    language_stated = models.TextField(default="", blank=True, db_default="")
    source = models.TextField(default="", blank=True)
    media_type = models.TextField(default="text/plain")
    text = models.TextField(default="", blank=True)
    size_chars = models.IntegerField(default=0)
    token_count = models.IntegerField(default=0)
    chunk_count = models.IntegerField(default=0)
    content_hash = models.TextField(default="", blank=True)
    source_hash = models.TextField(default="", blank=True)
    page_map = models.JSONField(default=list, blank=True)
    cell_map = models.JSONField(default=list, blank=True, db_default=[])
    segments = models.JSONField(default=list, blank=True)
    chunk_policy = models.JSONField(default=dict, blank=True)
    chunk_policy_stated = models.JSONField(default=dict, blank=True)
    warnings = models.JSONField(default=list, blank=True)
    revision = models.IntegerField(default=1)
    access = ArrayField(models.BigIntegerField(), default=open_access, editable=False, db_default=[0, 1])
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)
    state = models.TextField(choices=State.choices, default=State.ENABLED, db_default="enabled", editable=False)
    enabled = models.GeneratedField(
        expression=models.ExpressionWrapper(Q(state="enabled"), models.BooleanField()),
        output_field=models.BooleanField(),
        db_persist=True,
    )

    objects = DocumentQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "documents"

    @property
    def archived(self) -> bool:
        return self.state == self.State.ARCHIVED

    @property
    def restricted(self) -> bool:
        """Only some of those who may read the collection may read it."""
        return EVERYBODY not in self.access

    @property
    def copying_restricted(self) -> bool:
        """The author of its file has not allowed copying."""
        return COPYING_RESTRICTED in self.warnings

    def __str__(self) -> str:
        return self.doc_id

    @property
    def policy_stated(self) -> Mapping[str, Any]:
        """The same under the name that the facts of a stored document have."""
        explicit: Mapping[str, Any] = self.chunk_policy_stated
        return explicit

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.title or name_file(self.doc_id)


class ChunkQuerySet(QuerySet["Chunk"]):
    def of(self, collection: Collection) -> ChunkQuerySet:
        """Those that serve, read by the name of their table, as searches read them. First of all conditions."""
        rows = self.all()
        rows.query.join(BaseTable(collection.chunks_table, None))
        return rows.filter(collection_id=collection.pk)

    def light(self) -> ChunkQuerySet:
        """Without the vectors: what a reader needs."""
        return self.defer("embedding", "fts", "lexical", "tokens")

    def of_document(self, document: Document) -> ChunkQuerySet:
        return self.of(document.collection).filter(doc_id=document.doc_id).order_by("chunk_index")

    def outlying(self, limits: Limits, duplicates: QuerySet[Any]) -> ChunkQuerySet:
        """Of one document: too short, too long, without a letter (`outliers.flags_of`), or among the duplicates."""
        rows = self.alias(size=Length("content"), letters=Collate("content", "pg_c_utf8"))
        short = Q(token_count__lt=limits.short_words, size__lt=limits.short_chars)
        long = Q(token_count__gt=limits.long_words) | Q(size__gt=limits.long_chars)
        repeated = Q(chunk_index__in=duplicates.values("chunk_index"))
        return rows.filter(short | long | ~Q(letters__regex="[[:alpha:]]") | repeated)


class Chunk(models.Model):
    """The retrieval unit. `id` stands in for the partitioned table's key (collection_id, id).

    enabled: its document is, and it is not switched_off by itself.
    """

    id = models.BigAutoField(primary_key=True)
    collection = models.ForeignKey(Collection, on_delete=models.DO_NOTHING, db_constraint=False, related_name="chunks")
    doc_id = models.TextField(db_collation="C")
    chunk_index = models.IntegerField()
    content = models.TextField()
    start_char = models.IntegerField(default=0)
    end_char = models.IntegerField(default=0)
    context = models.TextField(default="", blank=True)
    tags = ArrayField(models.TextField(), default=list, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    attributes = models.JSONField(default=dict, blank=True, db_default={})
    token_count = models.IntegerField(default=0)
    revision = models.IntegerField(default=1)
    enabled = models.BooleanField(default=True)
    switched_off = models.BooleanField(default=False)
    access = ArrayField(models.BigIntegerField(), default=open_access, editable=False, db_default=[0, 1])
    embedding = VectorField()
    fts = SearchVectorField(null=True, editable=False)
    lexical = SparseVectorField(null=True, editable=False)
    tokens = models.BinaryField(null=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ChunkQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "chunks"

    def __str__(self) -> str:
        return f"{self.doc_id}#{self.chunk_index}"


def all_scopes() -> list[str]:
    return [permission.value for permission in Permission]


class ApiKeyQuerySet(QuerySet["ApiKey"]):
    def live(self, now: datetime) -> ApiKeyQuerySet:
        return self.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True)

    def newest(self) -> ApiKeyQuerySet:
        return self.order_by("-created_at", "-id")


class ApiKey(models.Model):
    """A bearer key. Only the SHA-256 of the secret is kept.

    collections: the names that it is limited to, [] for none. collection_ids: the id of the collection that each of
    them stands for, 0 where none of that name was there yet; whoever uses a name again does not open theirs to the key.
    scopes: the permissions that it has at most. user: as whom it acts; null: a program of its own, that belongs to the
    groups of group_ids. created_by: as `name_actor` gives it. previous_hash: of the secret before the last rotation,
    which is taken until previous_until. requests_per_minute, tokens_per_day: null for the server's default, 0 for any
    number.
    """

    id = models.BigAutoField(primary_key=True)
    label = models.TextField()
    key_hash = models.BinaryField(unique=True)
    prefix = models.TextField(default="", blank=True)
    scopes = ArrayField(models.TextField(), default=all_scopes, blank=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        db_constraint=False,
        on_delete=models.DO_NOTHING,  # a key of somebody who is gone opens nothing, and is not forgotten
        related_name="+",
    )
    group_ids = ArrayField(models.BigIntegerField(), default=list, blank=True)
    collections = ArrayField(models.TextField(), default=list, blank=True)
    collection_ids = ArrayField(models.BigIntegerField(), default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    created_by = models.TextField(default="", blank=True, editable=False, db_default="")
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_from = models.TextField(default="", blank=True, editable=False, db_default="")
    rotated_at = models.DateTimeField(null=True, blank=True, editable=False)
    previous_hash = models.BinaryField(null=True, blank=True)
    previous_until = models.DateTimeField(null=True, blank=True, editable=False)
    requests_per_minute = models.IntegerField(null=True, blank=True)
    tokens_per_day = models.BigIntegerField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        managed = False
        db_table = "api_keys"
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.label} ({self.prefix}…)"

    @property
    def scope(self) -> str:
        """Return the scopes in one word: "write" where it may write, else "read"."""
        return "write" if Permission.WRITE in self.scopes else "read"

    @cached_property
    def visible(self) -> CollectionScope:
        """What it opens now; asked for once."""
        if not self.collections:
            return EVERYTHING
        rows = Collection.objects.live().filter(pk__in=self.collection_ids, name__in=self.collections)
        return CollectionScope(
            {pk: (name, made_at) for pk, name, made_at in rows.values_list("pk", "name", "created_at")}
        )

    @property
    def status(self) -> str:
        """live, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= timezone.now():
            return "expired"
        return "live"


Actor = AbstractBaseUser | AnonymousUser | ApiKey | None  # who asked for something; None: the system

KEY_PREFIX = "key "  # no user is called so: names of users have no space


def acting(actor: Actor) -> Actor:
    """Who it was: of a key that is stored nowhere, as that of `ragd api`, the user whom it stands for."""
    return actor.user if isinstance(actor, ApiKey) and actor.pk is None else actor


def name_actor(actor: Actor) -> str:
    """Who it was, in words: a user's name, "key <label>", or "the system"."""
    actor = acting(actor)
    if isinstance(actor, AbstractBaseUser):
        return actor.get_username()
    return f"{KEY_PREFIX}{actor.label}" if isinstance(actor, ApiKey) else "the system"


def key_label(name: str) -> str | None:
    """The label of the key in what `name_actor` wrote; None where it was no key."""
    return name.removeprefix(KEY_PREFIX) if name.startswith(KEY_PREFIX) else None
