"""Questions to begin with: those that collections state, else some made of their documents' titles, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest

from django.contrib.auth.models import User
from django.utils.translation import gettext

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.models import Collection, Document
from retrieval_app.models import QueryRun

STATED_SHOWN = 4
MADE_SHOWN = 3


def askable(collections: Sequence[Collection]) -> list[Collection]:
    """Those in which whoever asks may ask, in their order."""
    access = current_access()
    return [each for each in collections if access.may(Permission.ASK, each.pk)]


def usual_collections(user: User, collections: Sequence[Collection]) -> list[Collection]:
    """Those of these that this person asked last, else the first in which they may ask; [] without one."""
    names = [each.name for each in collections]
    newest = QueryRun.objects.filter(user=user, collection_name__in=names).newest_first().first()
    used = newest.collection_names if newest else ()
    return [each for each in collections if each.name in used] or askable(collections)[:1]


def find_starters(collections: Sequence[Collection]) -> list[str]:
    """At most four that these collections state, in turn; without any, at most three about their first titled
    documents by doc_id that the reader may read. Collections in which they may not ask give none."""
    asked = askable(collections)
    stated = chain.from_iterable(zip_longest(*(each.starters for each in asked)))
    if found := list(dict.fromkeys(text for text in stated if text))[:STATED_SHOWN]:
        return found
    titled = Document.objects.in_state("enabled").filter(collection__in=[each.pk for each in asked]).exclude(title="")
    titles = titled.order_by("collection_id", "doc_id").values_list("title", flat=True)[:MADE_SHOWN]
    return [gettext("What is “%(title)s” about?") % {"title": title} for title in dict.fromkeys(titles)]
