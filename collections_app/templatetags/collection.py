"""Tags of the pages of a collection: who may do what, sources in trouble, attachments, chunks in pictures."""

from __future__ import annotations

from typing import Any

from django import template
from django.template import Context
from django.utils.safestring import SafeString

from collections_app.access.context import current_access
from collections_app.access.people import name_administrators
from collections_app.access.permissions import Permission
from collections_app.chunks.overlays import FLAG_WORDS
from collections_app.chunks.preview import Bins
from collections_app.collections.views import describe_statistics
from collections_app.documents.stored_documents import attachments_of, parent_of
from collections_app.models import Collection, Document
from collections_app.sources.records import troubled_sources
from collections_app.templatetags.interface import chip, draw_histogram, histogram_bars, icon

register = template.Library()
register.simple_tag(name_administrators, name="whom_to_ask")


@register.inclusion_tag("collections/parts/statistics.html", takes_context=True)
def statistics_section(context: Context) -> dict[str, Any]:
    """What a collection holds, below its documents."""
    shared = {name: context.get(name) for name in ("collection", "may", "may_all", "request")}
    return shared | describe_statistics(context["collection"])


@register.filter
def permits(collection: Collection, permission: str) -> bool:
    """Whether the reader has the permission in a collection."""
    return current_access().may(Permission(permission), collection.pk)


@register.inclusion_tag("sources/parts/alarm.html")
def source_alarm(collection: Collection | None = None) -> dict[str, Any]:
    """A banner for each source that needs somebody who may change it; without a collection for all of them."""
    return {"troubled": troubled_sources(collection), "is_home": collection is None}


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


@register.simple_tag
def paired_histogram(bins: Bins, label: str) -> SafeString:
    """Each bin twice: now as an outline, then filled. Bars of equal width, left to right."""
    highest = max([*bins.now, *bins.then], default=0) or 1
    now = histogram_bars(bins.now, "now", 0.06, 0.42, highest)
    return draw_histogram("histogram paired", label, now + histogram_bars(bins.then, "then", 0.5, 0.42, highest))


@register.simple_tag
def flag_chip(flag: str) -> SafeString:
    """One flag of a chunk in words."""
    return chip("watch", icon("alert"), FLAG_WORDS[flag])
