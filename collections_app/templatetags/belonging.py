"""What came inside what, as pages tell it: the attachments of a mail, and the mail of an attachment."""

from __future__ import annotations

from typing import Any

from django import template

from collections_app.models import Collection, Document
from collections_app.services.documents.document_tree import attachments_of, parent_of

register = template.Library()

SHOWN_MAX = 200


@register.inclusion_tag("collections/parts/belonging.html")
def belonging(collection: Collection, document: Document) -> dict[str, Any]:
    """Links from a mail to its attachments, those on their way too, and from an attachment to its mail."""
    attached = attachments_of(collection, [document.doc_id])
    there = set(Document.objects.filter(collection=collection, doc_id__in=attached).values_list("doc_id", flat=True))
    parent = parent_of(document)
    return {
        "collection": collection,
        "parent": parent,
        "has_parent": bool(parent) and Document.objects.filter(collection=collection, doc_id=parent).exists(),
        "attached": [
            {"doc_id": doc_id, "name": doc_id.removeprefix(f"{document.doc_id}/"), "is_there": doc_id in there}
            for doc_id in attached[:SHOWN_MAX]
        ],
        "total": len(attached),
        "more": max(len(attached) - SHOWN_MAX, 0),
    }
