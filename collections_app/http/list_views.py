"""Views that a person saved of a list, each a name for a filter. One way for all lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, QueryDict

from collections_app.http.page_requests import PageRequest
from collections_app.models.personal import PersonalSetting
from ragd.errors import InvalidInput

EXPERT_SETTINGS = "expert-settings"  # the key of whether a person sees all retrieval settings
LISTS = ("runs", "spans", "questions", "documents")
VIEWS_MAX = 30
NAME_CHARS_MAX = 60
QUERY_CHARS_MAX = 2_000
MOVES = ("page", "cursor", "span", "tab")  # where in the list somebody is: no part of a view


@dataclass(frozen=True, slots=True)
class SavedView:
    """query: as it stands in the address behind "?", "" for the whole list."""

    name: str
    query: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class ListViews:
    """name: one of LISTS. query: the filter of the page as a view would keep it."""

    name: str
    views: tuple[SavedView, ...]
    query: str


def read_setting(user: Any, key: str) -> Any:
    """None where the person kept nothing under the key."""
    return PersonalSetting.objects.filter(user=user, key=key).values_list("value", flat=True).first()


def keep_setting(user: Any, key: str, value: Any) -> None:
    """None, or an empty list, forgets it."""
    if value in (None, []):
        PersonalSetting.objects.filter(user=user, key=key).delete()
    else:
        PersonalSetting.objects.update_or_create(user=user, key=key, defaults={"value": value})


def read_views(request: PageRequest, name: str) -> ListViews:
    """The views that the person saved of the list whose page this is."""
    query = own_query(request)
    saved = read_setting(request.user, f"views:{name}") or []
    return ListViews(
        name, tuple(SavedView(each["name"], each["query"], each["query"] == query) for each in saved), query
    )


def own_query(request: HttpRequest) -> str:
    """The filter and order of the page, parameters by name, without what is empty and without the place in it."""
    return clean_query(request.GET.urlencode())


def clean_query(text: str) -> str:
    given = QueryDict(text)
    known = QueryDict(mutable=True)
    for name in sorted(given):
        values = [value for value in given.getlist(name) if value]
        if values and name not in MOVES:
            known.setlist(name, values)
    return known.urlencode()


def save_view(user: Any, name_of_list: str, name: str, query: str) -> None:
    """Keep the filter under the name; a view of that name is replaced. Raises InvalidInput (name, query)."""
    name, query = " ".join(name.split()), clean_query(query)
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        raise InvalidInput(f"a view needs a name of 1 to {NAME_CHARS_MAX} characters, not {len(name)}", field="name")
    if len(query) > QUERY_CHARS_MAX:
        raise InvalidInput(
            f"the filter of a view has at most {QUERY_CHARS_MAX:,} characters, not {len(query):,}", field="query"
        )
    key = f"views:{_known(name_of_list)}"
    views = [each for each in read_setting(user, key) or [] if each["name"] != name]
    if len(views) >= VIEWS_MAX:
        raise InvalidInput(f"a list has at most {VIEWS_MAX} views: delete one first", field="name")
    keep_setting(user, key, sorted([*views, {"name": name, "query": query}], key=lambda each: str(each["name"])))


def delete_view(user: Any, name_of_list: str, name: str) -> None:
    """A name that there is none of changes nothing."""
    key = f"views:{_known(name_of_list)}"
    keep_setting(user, key, [each for each in read_setting(user, key) or [] if each["name"] != name])


def _known(name: str) -> str:
    if name not in LISTS:
        raise InvalidInput(f"list must be one of {', '.join(LISTS)}, not {name!r}", field="list")
    return name
