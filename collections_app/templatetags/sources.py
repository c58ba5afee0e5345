"""The alarm of sources, for pages of a collection and for Home: {% source_alarm collection %}."""

from __future__ import annotations

from typing import Any

from django import template

from collections_app.models import Collection
from collections_app.services.connectors.records import troubled_connectors

register = template.Library()


@register.inclusion_tag("connectors/parts/alarm.html")
def source_alarm(collection: Collection | None = None) -> dict[str, Any]:
    """A banner for each source that needs somebody who may change it; without a collection for all of them."""
    return {"troubled": troubled_connectors(collection), "is_home": collection is None}
