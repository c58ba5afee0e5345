"""The search line of a list page with its filters, and the views that a person saved of a list.

A saved view is a name for a filter. `list_page` and `components/list.html` draw every list page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from typing import Any

from django.core import paginator
from django.db.models import Q
from django.http import HttpRequest, QueryDict
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.models import PersonalSetting
from collections_app.domain.formats import parse_moment
from collections_app.http.page_requests import PageRequest, page_of
from ragd.conditions import DAY_CHARS
from ragd.errors import InvalidInput

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
CHIPS_IN_LINE = 5  # more are behind one button, until they are set
MINUTE = "%Y-%m-%dT%H:%M"  # as an input of type datetime-local has it
AGES = (("24h", gettext_lazy("24 hours")), ("7d", gettext_lazy("7 days")), ("30d", gettext_lazy("30 days")))
Text = Any  # a text, or one that is translated when it is drawn


@dataclass(frozen=True, slots=True)
class Entry:
    """A value that is typed into a chip. read: the value of a text; raises ValueError, ValidationError or InvalidInput.

    attrs: of its input. options: values that the input offers; with choices, (value, label), it is a select. words:
    what the chip says, with {} for the text.
    """

    name: str
    label: Text
    read: Callable[[str], Any] = str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    options: Iterable[Any] = ()
    choices: Iterable[tuple[str, Text]] = ()
    words: Text = "{}"

    def show(self, text: str) -> str:
        """The text as its input takes it: a time by its minute in UTC, an age not at all."""
        if self.attrs.get("type") != "datetime-local" or not text or text in dict(AGES):
            return text
        with suppress(InvalidInput):
            if len(text) == DAY_CHARS and self.name == "until":
                return f"{text}T23:59"
            moment = parse_moment(self.name, text)
            return moment.astimezone(UTC).strftime(MINUTE) if moment else ""
        return text


@dataclass(frozen=True, slots=True)
class Filter:
    """One way to narrow a list: a parameter of its address, drawn as a chip that opens.

    choices: (value, label), (value, label, how many rows it leaves), or a value alone; or a function that gives them.
    The value "" stands for no filter, and `usual` for the same. by: the field that has one of the values, or a function
    of the rows and the value, "" where none is set; None where the page narrows its rows itself. many: each value is
    added to the others. free: other values than the choices are values too; else they are ignored, and the page says
    so. entries: the parameters that are typed. template: draws what opens, with `extra`.
    """

    name: str
    label: Text
    choices: Iterable[Any] | Callable[[], Iterable[Any]] = ()
    by: str | Callable[[Any, str], Any] | None = None
    many: bool = False
    free: bool = False
    usual: str = ""
    entries: Sequence[Entry] = ()
    template: str = CHOICES
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries) or (self.name,)

    def read_choices(self) -> list[tuple[str, str, Any]]:
        """(value, label, how many rows or None)."""
        choices = self.choices() if callable(self.choices) else self.choices
        rows = [(each, each) if isinstance(each, str) else each for each in choices]
        return [(str(value), str(label), next(iter(more), None)) for value, label, *more in rows]


def read_number(text: str, least: float = -math.inf) -> float:
    """A finite number from `least` on. Raises ValueError."""
    with suppress(ValueError):
        if least <= (number := float(text)) and math.isfinite(number):
            return number
    raise ValueError(gettext("Enter a number.") if least < 0 else gettext("Enter a number from 0 on."))


read_amount = partial(read_number, least=0)


def bounds(name: str, label: Text, unit: str) -> Filter:
    """Two amounts, both included: the least is min_NAME, the greatest max_NAME."""
    marks = {"inputmode": "decimal"}
    least = Entry(f"min_{name}", gettext_lazy("At least"), read_amount, marks, words="≥ {} " + unit)
    greatest = Entry(f"max_{name}", gettext_lazy("At most"), read_amount, marks, words="≤ {} " + unit)
    return Filter(f"min_{name}", label, entries=(least, greatest))


def period() -> Filter:
    """The one range of time: since and until, each a time in UTC or an age; the usual ages at hand."""
    marks = {"type": "datetime-local", "max": "9999-12-31T23:59"}

    def read(name: str) -> Callable[[str], Any]:
        return lambda text: parse_moment(name, text)

    return Filter(
        "since",
        gettext_lazy("Time"),
        [("", gettext_lazy("Any time")), *AGES],
        entries=(
            Entry("since", gettext_lazy("From (UTC)"), read("since"), marks, words=gettext_lazy("from {}")),
            Entry("until", gettext_lazy("Until (UTC)"), read("until"), marks, words=gettext_lazy("until {}")),
        ),
    )


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
    """A filter as the address has it. words: what it is set to, "" where it is not set. is_open: it leaves something to
    choose. href: the list without it. entries: (what is typed, its text for the input). others: the other parameters,
    for a form in it."""

    filter: Filter
    values: list[str]
    choices: tuple[Choice, ...]
    words: str
    is_open: bool
    href: str
    entries: tuple[tuple[Entry, str], ...]
    others: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class ListKind:
    """What all requests for a list have in common.

    part: the id of its element, which changes replace, "" for chips that narrow a whole page. noun:
    "document,documents". search: what the search field says in its empty state, "" for none; search_by: fields that
    contain the words; words: its parameter.
    sorts: name in the address -> fields; the first is the usual one. views: one of LISTS, "" where none are saved.
    is_live: it searches while one types. anchor: of its addresses, where it does not stand at the top of its page.
    """

    part: str
    noun: Text
    search: Text = ""
    search_by: Sequence[str] = ()
    sorts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    per_page: int = 50
    views: str = ""
    words: str = SEARCH
    is_live: bool = True
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class FilterValues:
    """What an address states of filters. values: by parameter, None where it states none. texts: the same as it has
    them. misfits: (label of a filter, why its value is ignored)."""

    values: dict[str, Any]
    texts: dict[str, str]
    misfits: tuple[tuple[str, str], ...]


def read_filters(query: QueryDict, filters: Iterable[Filter]) -> FilterValues:
    """A value that makes no sense is left out and among the misfits. Of `many`, the last."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    misfits: list[tuple[str, str]] = []
    for each in filters:
        entries = each.entries or (Entry(each.name, each.label),)
        for entry in entries:
            values[entry.name] = None
            text = query.get(entry.name, "").strip()
            if not text or (not each.entries and text == each.usual):
                continue
            is_open = each.entries or each.free
            try:
                if "\x00" in text or (entry.choices and text not in dict(entry.choices)):
                    raise ValueError
                if not (is_open or text in {value for value, _, _ in each.read_choices()}):
                    raise ValueError
                values[entry.name] = entry.read(text)
                texts[entry.name] = text
            except InvalidInput as error:
                misfits.append((str(each.label), error.message))
            except ValueError as error:
                misfits.append((str(each.label), str(error) or gettext("the list has no %(value)s") % {"value": text}))
    return FilterValues(values, texts, tuple(misfits))


@dataclass(frozen=True, slots=True)
class ListPage:
    """more: chips that are not set and find no room in the line. misfits: (label, why its value is ignored).

    rows, newer, older: of a list without page numbers, the addresses of the pages beside it, "" at an end.
    """

    kind: ListKind
    page: paginator.Page[Any]
    sort: str
    q: str
    chips: tuple[Chip, ...]
    more: tuple[Chip, ...]
    others: tuple[tuple[str, str], ...]
    misfits: tuple[tuple[str, str], ...]
    views: ListViews | None
    rows: Sequence[Any] = ()
    newer: str = ""
    older: str = ""

    @property
    def whole(self) -> str:
        """The query of the list without filters, at the view of its address that it is."""
        return "".join(f"view={value}" for name, value in self.others if name == "view")

    @property
    def is_narrowed(self) -> bool:
        return bool(self.q) or any(chip.words for chip in self.chips)

    @property
    def has_rows(self) -> bool:
        return bool(self.rows or self.page.paginator.count)

    def context(self) -> dict[str, Any]:
        """What `components/list.html` reads."""
        return {"list": self, "page": self.page, "sort": self.sort, "sort_target": self.kind.part}


def list_page(
    request: PageRequest,
    kind: ListKind,
    rows: Any,
    filters: Sequence[Filter] = (),
    *,
    query: QueryDict | None = None,
    counts: Callable[[str], Mapping[str, int]] | None = None,
) -> ListPage:
    """Narrow the rows (a queryset, or a sequence with filters that are functions) as the address says, sort them and
    take one page; None for a list without page numbers.

    query: in place of the address' own. counts: for a parameter, how many rows each of its values leaves; {} for those
    that are not counted.
    """
    query = request.GET if query is None else query
    q = query.get(kind.words, "").strip()
    if q and kind.search_by:
        rows = _search(rows, kind.search_by, q)
    chips: list[Chip] = []  # without one that leaves nothing to choose
    for each in filters:
        chip = _chip(query, each, counts(each.name) if counts else {})
        if chip.is_open:
            chips.append(chip)
        if isinstance(each.by, str) and chip.values:
            rows = rows.filter(**{f"{each.by}__in": chip.values})
        elif callable(each.by):
            rows = each.by(rows, "".join(chip.values[:1]))
    sort = query.get("sort", "")
    sort = sort if sort in kind.sorts else next(iter(kind.sorts), "")
    if kind.sorts:
        rows = rows.order_by(*kind.sorts[sort])
    in_line = CHIPS_IN_LINE if len(chips) > CHIPS_IN_LINE + 1 else len(chips)
    return ListPage(
        kind=kind,
        page=page_of(request, [] if rows is None else rows, kind.per_page),
        sort=sort,
        q=q,
        chips=tuple(chip for place, chip in enumerate(chips) if chip.words or place < in_line),
        more=tuple(chip for place, chip in enumerate(chips) if not chip.words and place >= in_line),
        others=_others(query, kind.words),
        misfits=read_filters(query, filters).misfits,
        views=read_views(request, kind.views) if kind.views else None,
    )


def _search(rows: Any, by: Sequence[str], q: str) -> Any:
    if "\x00" in q:
        return rows.none()
    condition = Q()
    for name in by:
        condition |= Q(**{f"{name}__icontains": q})
    return rows.filter(condition)


def _chip(query: QueryDict, narrow: Filter, counts: Mapping[str, int]) -> Chip:
    choices = [
        (value, label, counts.get(value, 0) if counts and value and number is None else number)
        for value, label, number in narrow.read_choices()
    ]
    has_more = narrow.template != CHOICES or narrow.entries or narrow.extra
    is_open = bool(has_more) or sum(number != 0 for _, _, number in choices) > 1
    labels = {value: label for value, label, _ in choices}
    if choices and not narrow.many and "" not in labels:
        choices.insert(0, ("", gettext("All"), None))
    values = [value for value in query.getlist(narrow.name) if value not in ("", narrow.usual) and "\x00" not in value]
    values = list(dict.fromkeys(values if narrow.many else values[-1:]))
    if not narrow.free and not narrow.entries:
        values = [value for value in values if value in labels]
    texts = {name: query.get(name, "").strip() for name in narrow.parameters}
    words = [labels.get(value, value) for value in values]
    if narrow.entries:
        typed = [_entry_words(entry, text, labels) for entry in narrow.entries if (text := texts[entry.name])]
        words = typed or words
    return Chip(
        filter=narrow,
        values=values,
        choices=tuple(
            Choice(
                value,
                label,
                number,
                value in values or (not value and not values),
                _href(query, narrow, _toggled(values, value) if narrow.many else [value]),
            )
            for value, label, number in choices
        ),
        words=", ".join(words),
        is_open=is_open or bool(words),
        href=_href(query, narrow, []),
        entries=tuple((entry, entry.show(texts[entry.name])) for entry in narrow.entries),
        others=_others(query, *narrow.parameters),
    )


def _entry_words(entry: Entry, text: str, labels: Mapping[str, str]) -> str:
    labels = {**labels, **{value: str(label) for value, label in entry.choices}}
    return labels[text] if text in labels else str(entry.words).format(entry.show(text).replace("T", " "))


def _toggled(values: list[str], value: str) -> list[str]:
    return [each for each in values if each != value] if value in values else [*values, value]


def _href(query: QueryDict, narrow: Filter, values: Sequence[str]) -> str:
    """The list with these values of the filter, on its first page."""
    query = query.copy()
    for name in (*MOVES, *narrow.parameters):
        query.pop(name, None)
    query.setlist(narrow.name, [value for value in values if value])
    return f"?{query.urlencode()}"


def _others(query: QueryDict, *names: str) -> tuple[tuple[str, str], ...]:
    """The parameters that a form which sets these ones sends along."""
    return tuple(
        (name, value) for name, values in query.lists() if name not in (*names, *MOVES) for value in values if value
    )
