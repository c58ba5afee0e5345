"""Display names of collections where only their names are known, as records of queries and evaluations have them."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from collections_app.models import Collection
from collections_app.models.library import collection_choices


def collection_titles(request: HttpRequest) -> dict[str, str]:
    """name -> display name of the live collections that who asks may see, by name; one query a request."""
    kept: Any = request
    if not hasattr(kept, "kept_titles"):
        kept.kept_titles = dict(collection_choices(Collection.objects.live().by_name().only("name", "title")))
    titles: dict[str, str] = kept.kept_titles
    return titles
