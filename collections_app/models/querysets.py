"""What is read, by name. Every list page and every list endpoint is one of these."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import BigIntegerField, Case, Count, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce, Collate, Length

if TYPE_CHECKING:
    from collections_app.domain.outliers import Limits
    from collections_app.models import (  # noqa: F401
        ApiKey,
        Chunk,
        Collection,
        Document,
        DocumentRevision,
        Generation,
        IngestJob,
        NearDuplicate,
        Upload,
    )

ACTIVE_STATES = ("queued", "running")
TROUBLED_STATES = ("failed", "quarantined")
NEXT_STATES = ("building", "ready")
KEPT_STATES = ("building", "ready", "serving", "retired", "failed")


class CollectionQuerySet(QuerySet["Collection"]):
    def live(self) -> CollectionQuerySet:
        """Not being deleted."""
        return self.filter(deleted_at__isnull=True)

    def allowed_to(self, names: Iterable[str]) -> CollectionQuerySet:
        """Those a key limited to `names` may see; no names means all."""
        wanted = list(names)
        return self.filter(name__in=wanted) if wanted else self

    def by_name(self) -> CollectionQuerySet:
        return self.order_by("name")

    def with_counts(self) -> CollectionQuerySet:
        """Adds document_total, chunk_total, token_total, char_total, active_jobs and failed_jobs, in the same query."""
        from collections_app.models import Document, IngestJob

        documents = Document.objects.filter(collection=OuterRef("pk")).order_by().values("collection")
        jobs = IngestJob.objects.filter(collection=OuterRef("pk")).order_by().values("collection")
        return self.annotate(
            document_total=_count(documents.annotate(total=Count("pk"))),
            chunk_total=_count(documents.annotate(total=Sum("chunk_count"))),
            token_total=_count(documents.annotate(total=Sum("token_count"))),
            char_total=_count(documents.annotate(total=Sum("size_chars"))),
            active_jobs=_count(jobs.filter(state__in=ACTIVE_STATES).annotate(total=Count("pk"))),
            failed_jobs=_count(jobs.filter(state__in=TROUBLED_STATES).annotate(total=Count("pk"))),
        )


def _count(rows: QuerySet[Any, Any]) -> Coalesce:
    return Coalesce(Subquery(rows.values("total")[:1]), 0, output_field=BigIntegerField())


class DocumentQuerySet(QuerySet["Document"]):
    def listed(self) -> DocumentQuerySet:
        """Without the text and the maps over it: what a list needs."""
        return self.defer("text", "page_map", "segments")

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
        wanted = words.replace("\x00", "").strip()
        if not wanted:
            return self
        # doc_id is collated "C", whose upper() knows ASCII only
        rows = self.alias(folded_id=Collate("doc_id", "default"))
        return rows.filter(Q(folded_id__icontains=wanted) | Q(title__icontains=wanted) | Q(source__icontains=wanted))

    def tagged(self, tags: Iterable[str]) -> DocumentQuerySet:
        """Carrying every one of the tags."""
        wanted = [tag.replace("\x00", "").strip() for tag in tags]
        return self.filter(tags__contains=wanted) if wanted else self

    def in_state(self, state: str) -> DocumentQuerySet:
        """present (not archived), enabled, disabled, archived, or any."""
        if state == "any":
            return self
        rows = self.filter(archived_at__isnull=state != "archived")
        return rows.filter(enabled=state == "enabled") if state in ("enabled", "disabled") else rows

    def of_type(self, media_type: str) -> DocumentQuerySet:
        """Of that media type; "" for all."""
        return self.filter(media_type=media_type.replace("\x00", "")) if media_type else self


class ChunkQuerySet(QuerySet["Chunk"]):
    def light(self) -> ChunkQuerySet:
        """Without the vectors: what a reader needs."""
        return self.defer("embedding", "fts", "lexical")

    def of_document(self, document: Document) -> ChunkQuerySet:
        return self.filter(collection_id=document.collection_id, doc_id=document.doc_id).order_by("chunk_index")

    def outlying(self, limits: Limits, duplicates: QuerySet[NearDuplicate]) -> ChunkQuerySet:
        """Of one document: too short, too long, without a letter (`outliers.flags_of`), or among the duplicates."""
        rows = self.alias(size=Length("content"), letters=Collate("content", "pg_c_utf8"))
        short = Q(token_count__lt=limits.short_words, size__lt=limits.short_chars)
        long = Q(token_count__gt=limits.long_words) | Q(size__gt=limits.long_chars)
        repeated = Q(chunk_index__in=duplicates.values("chunk_index"))
        return rows.filter(short | long | ~Q(letters__regex="[[:alpha:]]") | repeated)


class DocumentRevisionQuerySet(QuerySet["DocumentRevision"]):
    def listed(self) -> DocumentRevisionQuerySet:
        """Without the text, the maps over it and the chunks: what a list needs."""
        return self.defer("text", "page_map", "segments", "chunks")

    def of_document(self, collection_id: int, doc_id: str) -> DocumentRevisionQuerySet:
        """Newest first."""
        return self.filter(collection_id=collection_id, doc_id=doc_id).order_by("-revision")


class UploadQuerySet(QuerySet["Upload"]):
    def listed(self) -> UploadQuerySet:
        return self.defer("content")

    def of_document(self, collection_id: int, doc_id: str) -> UploadQuerySet:
        return self.filter(collection_id=collection_id, doc_id=doc_id)

    def delete(self) -> tuple[int, dict[str, int]]:
        """Without the bytes: Django reads what it deletes where other rows point at it."""
        return super(UploadQuerySet, self.listed()).delete()

    delete.queryset_only = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]


class IngestJobQuerySet(QuerySet["IngestJob"]):
    def active(self) -> IngestJobQuerySet:
        return self.filter(state__in=ACTIVE_STATES)

    def failed(self) -> IngestJobQuerySet:
        return self.filter(state="failed")

    def troubled(self) -> IngestJobQuerySet:
        """Failed or quarantined."""
        return self.filter(state__in=TROUBLED_STATES)

    def troubled_first(self) -> IngestJobQuerySet:
        """Those, then what runs, what waits, what was cancelled, what is done; within these by doc_id."""
        order = ("quarantined", "failed", "running", "queued", "cancelled")
        place = Case(*(When(state=state, then=Value(number)) for number, state in enumerate(order)), default=Value(9))
        return self.order_by(place, "doc_id", "created_at", "id")

    def newest(self) -> IngestJobQuerySet:
        return self.order_by("-created_at", "-id")

    def listed(self) -> IngestJobQuerySet:
        """With the collection, so that a list asks once."""
        return self.select_related("collection")


class GenerationQuerySet(QuerySet["Generation"]):
    def newest(self) -> GenerationQuerySet:
        return self.order_by("-number")

    def kept(self) -> GenerationQuerySet:
        """Those whose table is there, or is about to go."""
        return self.filter(state__in=KEPT_STATES)

    def next_up(self) -> GenerationQuerySet:
        """Being built, or complete and waiting to be swapped in; at most one per collection."""
        return self.filter(state__in=NEXT_STATES)


class ApiKeyQuerySet(QuerySet["ApiKey"]):
    def live(self, now: datetime) -> ApiKeyQuerySet:
        return self.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True)

    def newest(self) -> ApiKeyQuerySet:
        return self.order_by("-created_at", "-id")
