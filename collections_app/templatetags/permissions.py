"""What the reader of a page may do, for templates: {% if collection|permits:"ask" %}."""

from __future__ import annotations

from django import template

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.models import Collection

register = template.Library()


@register.filter
def permits(collection: Collection, permission: str) -> bool:
    """Whether the reader has the permission in a collection."""
    return current_access().may(Permission(permission), collection.pk)
