"""Where the words of a document stand on its pages: stored with its text, read back for a revision, dropped with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import connection

from collections_app.models import Document, StoredPage
from collections_app.parsing import PageLayout
from collections_app.parsing.layout import PackedWords, pack_words
from ragd.store.store import execute, fetch_all

PAGES_AT_ONCE = 200

PRESENT_HASH = "SELECT encode(sha256(convert_to(text, 'UTF8')), 'hex') FROM documents WHERE id = %(document)s"

# Hashing a text costs more than finding that there are no pages, so the texts stand apart and are asked for last.
DROP_UNUSED = """
WITH held AS MATERIALIZED (
    SELECT doc_id, encode(sha256(convert_to(text, 'UTF8')), 'hex') AS text_hash
    FROM documents WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
    UNION
    SELECT doc_id, encode(sha256(convert_to(text, 'UTF8')), 'hex')
    FROM document_revisions WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s) AND text <> ''
)
DELETE FROM page_layouts
WHERE collection_id = %(collection_id)s AND doc_id = ANY(%(doc_ids)s)
  AND (doc_id, text_hash) NOT IN (SELECT doc_id, text_hash FROM held)
"""


def store_pages(collection_id: int, doc_id: str, text_hash: str, layout: Sequence[PageLayout]) -> None:
    """Make these the pages of the text with that hash. In the transaction that stores the document."""
    StoredPage.objects.filter(collection_id=collection_id, doc_id=doc_id, text_hash=text_hash).delete()
    StoredPage.objects.bulk_create(
        (
            StoredPage(
                collection_id=collection_id,
                doc_id=doc_id,
                text_hash=text_hash,
                page=page.page,
                width=page.width,
                height=page.height,
                words=pack_words(page.words, page.width, page.height).data,
            )
            for page in layout
        ),
        batch_size=PAGES_AT_ONCE,
    )


def drop_unused_pages(collection_id: int, doc_ids: Iterable[str]) -> int:
    """Remove the pages of texts that neither these documents nor their earlier revisions have; returns how many."""
    return execute(connection, DROP_UNUSED, {"collection_id": collection_id, "doc_ids": list(doc_ids)})


def find_pages(document: Document, first: int, last: int, *, text_hash: str = "") -> list[PageLayout]:
    """The pages from first to last, counted from 1, in order. text_hash: of another text than the present one."""
    if not text_hash:
        ((text_hash,),) = fetch_all(connection, PRESENT_HASH, {"document": document.pk})
    rows = StoredPage.objects.filter(
        collection_id=document.collection_id,
        doc_id=document.doc_id,
        text_hash=text_hash,
        page__gte=first,
        page__lte=last,
    )
    return [
        PageLayout(row.page, row.width, row.height, PackedWords(bytes(row.words), row.width, row.height))
        for row in rows.order_by("page")
    ]
