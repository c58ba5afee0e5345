"""What the reader of a page may do, for templates: {% if collection|permits:"ask" %}."""

from __future__ import annotations

from django import template

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.models import Collection
from collections_app.services.governance.people import name_administrators

register = template.Library()


@register.filter
def permits(collection: Collection, permission: str) -> bool:
    """Whether the reader has the permission in a collection."""
    return current_access().may(Permission(permission), collection.pk)


@register.simple_tag
def whom_to_ask(collection: Collection) -> list[str]:
    """The names of people who give roles in a collection that the reader sees."""
    return name_administrators(collection)
