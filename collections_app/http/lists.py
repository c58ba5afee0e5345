"""Lists in pieces, the search line of a list page, and the views that a person saved of a list.

A piece has a limit and an opaque cursor that stands for the last row seen (keyset, so pages never shift). A saved view
is a name for a filter. `list_page` and `components/list.html` draw every list page.
"""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.core import paginator
from django.db.models import DateTimeField, Field, ForeignKey, IntegerField, Model, Q, QuerySet, UUIDField
from django.http import HttpRequest, QueryDict

from collections_app.access.models import PersonalSetting
from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, page_of
from ragd.errors import InvalidInput

DEFAULT_LIMIT = 50
LIMIT_MAX = 500
PLACE = ("place",)
VALUE_TYPES: dict[type[Field[Any, Any]], type] = {DateTimeField: datetime, UUIDField: uuid.UUID, IntegerField: int}

Row = TypeVar("Row")
Stored = TypeVar("Stored", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows in order. next_cursor is None on the last page."""

    items: list[Row]
    next_cursor: str | None


def filter_stated(rows: QuerySet[Stored], values: Mapping[str, Any]) -> QuerySet[Stored]:
    """The rows with these values of fields; those that are None or empty are not stated.

    PostgreSQL's texts hold no NUL: a value with one matches nothing.
    """
    stated = {name: value for name, value in values.items() if value}
    if any(
        "\x00" in str(each) for value in stated.values() for each in (value if isinstance(value, list) else [value])
    ):
        return rows.none()
    return rows.filter(**stated)


def paginate(
    rows: QuerySet[Stored], order: Sequence[str], *, limit: int | None = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Stored]:
    """One page of `rows` in `order` ("-created_at", "id": unique together, none of them null). One query.

    limit None gives everything. Raises ServiceError (422) for a limit or cursor that is not acceptable.
    """
    if limit is not None and not 1 <= limit <= LIMIT_MAX:
        raise _refuse(f"limit must be from 1 to {LIMIT_MAX}, not {limit}", "limit")
    ordered = rows.order_by(*order)
    if cursor:
        ordered = ordered.filter(_after(order, _read_row_key(rows.model, order, cursor)))
    if limit is None:
        return Page(list(ordered), None)
    result = list(ordered[: limit + 1])
    items = result[:limit]
    return Page(items, _encode(items[-1], order) if len(result) > limit else None)


def cut_page(rows: Sequence[Row], *, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Row]:
    """One page of rows that are all there already; the cursor stands for the place in them.

    Raises ServiceError (422) for a limit or cursor that is not acceptable.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise _refuse(f"limit must be from 1 to {LIMIT_MAX}, not {limit}", "limit")
    (first,) = _decode(cursor, PLACE) if cursor else (0,)
    if not isinstance(first, int) or first < 0:
        raise _refuse_cursor()
    after = first + limit
    return Page(list(rows[first:after]), _write(PLACE, [after]) if after < len(rows) else None)


def _read_row_key(model: type[Model], order: Sequence[str], cursor: str) -> list[Any]:
    """The cursor's values of the fields of `order`. Raises ServiceError (422) where one has not its field's type."""
    values = _decode(cursor, order)
    types = [_value_type(model, name.lstrip("-")) for name in order]
    if not all(type(value) is expected for value, expected in zip(values, types, strict=True)):
        raise _refuse_cursor()
    return values


def _value_type(model: type[Model], name: str) -> type:
    field = model._meta.get_field(name)
    if isinstance(field, ForeignKey):
        field = field.target_field
    for kind, value_type in VALUE_TYPES.items():
        if isinstance(field, kind):
            return value_type
    return str


def _after(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Rows behind `values`: (a > x) or (a = x and b > y) or ..."""
    condition = Q()
    equal = Q()
    for name, value in zip(order, values, strict=True):
        field = name.lstrip("-")
        direction = "lt" if name.startswith("-") else "gt"
        condition |= equal & Q(**{f"{field}__{direction}": value})
        equal &= Q(**{field: value})
    return condition


def _encode(row: Model, order: Sequence[str]) -> str:
    return _write(order, [_plain(getattr(row, name.lstrip("-"))) for name in order])


def _write(order: Sequence[str], values: Sequence[Any]) -> str:
    text = json.dumps([list(order), values], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"at": value.isoformat()}
    if isinstance(value, uuid.UUID):
        return {"id": value.hex}
    return value


def _decode(cursor: str, order: Sequence[str]) -> list[Any]:
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        names, values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        restored = [_restore(value) for value in values]
    except (ValueError, TypeError, KeyError, binascii.Error, RecursionError):
        raise _refuse_cursor() from None
    if names != list(order) or len(restored) != len(order):
        raise _refuse_cursor()
    return restored


def _restore(value: Any) -> Any:
    if isinstance(value, dict):
        return _restore_time(value["at"]) if "at" in value else uuid.UUID(value["id"])
    if isinstance(value, bool) or not isinstance(value, (str, int)) or "\x00" in str(value):
        raise ValueError(value)
    str(value).encode()  # half a surrogate pair, which no stored text holds, is a ValueError
    return value


def _restore_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time


def _refuse_cursor() -> ServiceError:
    return _refuse(
        "cursor is not one that this list gave; take next_cursor from the page before, or leave it out", "cursor"
    )


def _refuse(message: str, field: str) -> ServiceError:
    return ServiceError(message, type="invalid_input", status=422, field=field)


EXPERT_SETTINGS = "expert-settings"  # the key of whether a person sees all retrieval settings
LISTS = ("runs", "spans", "questions", "documents")
VIEWS_MAX = 30
NAME_CHARS_MAX = 60
QUERY_CHARS_MAX = 2_000
MOVES = ("page", "cursor", "before", "after", "span", "tab")  # where in the list somebody is: no part of a view


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


CHOICES = "components/filter_choices.html"
SEARCH = "q"  # the parameter of the search field
Text = Any  # a text, or one that is translated when it is drawn


@dataclass(frozen=True, slots=True)
class Filter:
    """One way to narrow a list: a parameter of its address, drawn as a chip that opens.

    choices: (value, label) or (value, label, how many rows it leaves); the value "" stands for no filter. by: the field
    that has one of the values, or a function of the rows; None where the page narrows its rows itself. many: each
    value is added to the others. free: other values than the choices are values too; else they are ignored, and the
    page says so. template: draws what opens, with `extra`.
    """

    name: str
    label: Text
    choices: Iterable[tuple[Any, ...]] = ()
    by: str | Callable[[Any], Any] | None = None
    many: bool = False
    free: bool = False
    template: str = CHOICES
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a chip. href: the list with it or, for a value that is set and one of many, without it."""

    value: str
    label: str
    count: int | None
    is_current: bool
    href: str


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter as the address has it. words: what it is set to, "" where it is not set. href: the list without it.
    others: the other parameters, for a form in it."""

    filter: Filter
    values: list[str]
    choices: tuple[Choice, ...]
    words: str
    href: str
    others: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ListKind:
    """What all requests for a list have in common.

    part: the id of its element, which changes replace. noun: "document,documents". search: what the search field says
    in its empty state, "" for none; search_by: fields that contain the words.
    sorts: name in the address -> fields; the first is the usual one. views: one of LISTS, "" where none are saved.
    """

    part: str
    noun: Text
    search: Text = ""
    search_by: Sequence[str] = ()
    sorts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    per_page: int = 50
    views: str = ""


@dataclass(frozen=True, slots=True)
class ListPage:
    """misfits: (label of a filter, its value that makes no sense)."""

    kind: ListKind
    page: paginator.Page[Any]
    sort: str
    q: str
    chips: tuple[Chip, ...]
    others: tuple[tuple[str, str], ...]
    misfits: tuple[tuple[str, str], ...]
    views: ListViews | None

    @property
    def is_narrowed(self) -> bool:
        return bool(self.q) or any(chip.words for chip in self.chips)

    def context(self) -> dict[str, Any]:
        """What `components/list.html` reads."""
        return {"list": self, "page": self.page, "sort": self.sort, "sort_target": self.kind.part}


def list_page(request: PageRequest, kind: ListKind, rows: Any, filters: Sequence[Filter] = ()) -> ListPage:
    """Narrow the rows (a queryset, or a sequence with filters that are functions) as the address says, sort them and
    take one page."""
    q = request.GET.get(SEARCH, "").strip()
    if q and kind.search_by:
        rows = _search(rows, kind.search_by, q)
    chips: list[Chip] = []  # without one that leaves nothing to choose
    misfits: list[tuple[str, str]] = []
    for each in filters:
        chip, unknown = _chip(request, each)
        misfits += [(each.label, value) for value in unknown]
        if chip.words or each.template != CHOICES or sum(choice.count != 0 for choice in chip.choices) > 1:
            chips.append(chip)
        if isinstance(each.by, str) and chip.values:
            rows = rows.filter(**{f"{each.by}__in": chip.values})
        elif callable(each.by) and chip.values:
            rows = each.by(rows)
    sort = request.GET.get("sort", "")
    sort = sort if sort in kind.sorts else next(iter(kind.sorts), "")
    if kind.sorts:
        rows = rows.order_by(*kind.sorts[sort])
    return ListPage(
        kind=kind,
        page=page_of(request, rows, kind.per_page),
        sort=sort,
        q=q,
        chips=tuple(chips),
        others=_others(request.GET, SEARCH),
        misfits=tuple(misfits),
        views=read_views(request, kind.views) if kind.views else None,
    )


def _search(rows: Any, by: Sequence[str], q: str) -> Any:
    if "\x00" in q:
        return rows.none()
    condition = Q()
    for name in by:
        condition |= Q(**{f"{name}__icontains": q})
    return rows.filter(condition)


def _chip(request: HttpRequest, narrow: Filter) -> tuple[Chip, list[str]]:
    """The chip, and values of the address that are not among its choices."""
    choices = [(str(value), str(label), *more) for value, label, *more in narrow.choices]
    values = [value for value in request.GET.getlist(narrow.name) if value]
    own = list(dict.fromkeys(values if narrow.many else values[-1:]))
    labels = {value: label for value, label, *_ in choices}
    unknown = [] if narrow.free else [value for value in own if value not in labels]
    own = [value for value in own if value not in unknown]
    chip = Chip(
        filter=narrow,
        values=own,
        choices=tuple(
            Choice(
                value,
                label,
                more[0] if more else None,
                value in own or (not value and not own),
                _href(request.GET, narrow, _toggled(own, value) if narrow.many else [value]),
            )
            for value, label, *more in choices
        ),
        words=", ".join(labels.get(value, value) for value in own),
        href=_href(request.GET, narrow, []),
        others=_others(request.GET, narrow.name),
    )
    return chip, unknown


def _toggled(values: list[str], value: str) -> list[str]:
    return [each for each in values if each != value] if value in values else [*values, value]


def _href(query: QueryDict, narrow: Filter, values: Sequence[str]) -> str:
    """The list with these values of the filter, on its first page."""
    query = query.copy()
    for name in MOVES:
        query.pop(name, None)
    query.setlist(narrow.name, [value for value in values if value])
    return f"?{query.urlencode()}"


def _others(query: QueryDict, *names: str) -> tuple[tuple[str, str], ...]:
    """The parameters that a form which sets these ones sends along."""
    return tuple(
        (name, value) for name, values in query.lists() if name not in (*names, *MOVES) for value in values if value
    )
