"""The admin's rows: listed by a table of columns, changed by actions over services, audited whoever changes them.

Stored values as people read them: structures as tables and lists, durations with units, positions from 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.search import SearchVectorField
from django.db.models import BinaryField, Field, ForeignKey, JSONField, Model, QuerySet, TextField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from pgvector.django import SparseVectorField, VectorField

from collections_app.audit import services
from collections_app.domain import formats
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from ragd.errors import RagdError

SHOWN_ROWS = 50
CELL_CHARS = 80
NOTHING = "–"
UNITS: dict[str, Callable[[Any], str]] = {
    "_ms": formats.duration,
    "_s": lambda value: formats.duration(value * 1000),
    "_bytes": formats.size,
    "position": lambda value: formats.number(value + 1),
}


def readable(value: Any, name: str = "") -> str:
    """Write a stored value as HTML: an object as a table of names and values, a list as a list.

    name: of the field or key, whose ending says the unit. Of a list the first SHOWN_ROWS and how many more there are;
    an en dash for nothing.
    """
    if value is None or value in ("", {}, [], ()):
        return NOTHING
    if isinstance(value, Mapping):
        pairs = ((formats.words(str(key)), readable(each, str(key))) for key, each in value.items())
        rows = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', pairs)
        return format_html('<table class="readable">{}</table>', rows)
    if isinstance(value, Sequence) and not isinstance(value, str):
        first = [readable(each) for each in value[:SHOWN_ROWS]]
        left = len(value) - len(first)
        more = f"and {formats.number(left)} more" if left else ""
        if not any(isinstance(each, Mapping | list) for each in value[:SHOWN_ROWS]):
            return ", ".join([*first, *filter(None, [more])])
        items = format_html_join("", "<li>{}</li>", ((each,) for each in first))
        return format_html('<ul class="readable">{}</ul>{}', items, more)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, int | float):
        return unit_of(name)(value)
    return str(value)


def unit_of(name: str) -> Callable[[Any], str]:
    """Return how a number of that name is written."""
    plain: Callable[[Any], str] = lambda value: f"{value:,}" if isinstance(value, int) else f"{value:.4g}"  # noqa: E731
    return next((write for ending, write in UNITS.items() if name.endswith(ending)), plain)


def display_of(model: type[Model], name: str, *, in_list: bool = False) -> Any:
    """Return what shows the model's field of that name: the name itself where Django's own way will do.

    in_list: a text is cut after CELL_CHARS. A name that is no field, such as a property's, is returned as it is.
    """
    field: Field[Any, Any] | None = {each.name: each for each in model._meta.concrete_fields}.get(name)
    is_long = in_list and isinstance(field, TextField) and not field.choices
    if field is None or not (is_long or name.endswith(tuple(UNITS)) or isinstance(field, JSONField | ArrayField)):
        return name
    title = str(field.verbose_name).removesuffix(" ms").removesuffix(" s").removesuffix(" bytes")

    @admin.display(description=title, ordering=name)
    def show(row: Model) -> str:
        value = getattr(row, name)
        cut = is_long and value and len(value) > CELL_CHARS
        return f"{value[:CELL_CHARS]}…" if cut else readable(value, name)

    show.__name__ = name
    return show


if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin

Action = Callable[[Any, HttpRequest, QuerySet[Any]], None]
MANAGE, ERASE = "manage", "erase"  # what actions ask for: the permission to change rows, and the one to delete them
UNREADABLE = (BinaryField, SearchVectorField, SparseVectorField, VectorField)
HEAVY = (*UNREADABLE, JSONField)
CHANGED = "_audit_changed"
SHOWN_APPS = frozenset({"auth"})  # of whose deleted rows the values are kept; others may hold texts


class AuditedAdmin(Base):
    """Record what the admin saves and deletes, and show a row's history, in the audit log.

    services_record: the services that save and delete the rows write the events, the admin writes none.
    """

    services_record = False

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Django's, and beside it what the fields were and are."""
        names = [name for name in form.changed_data if name in form.cleaned_data]
        after = {name: _named(form.cleaned_data[name]) for name in names}
        before = None if add else {name: _named(form.initial.get(name)) for name in names}
        setattr(request, CHANGED, (before, after))
        return super().construct_change_message(request, form, formsets, add)

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        self._record(request, [obj], services.ADDITION, "added in the admin")

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        self._record(request, [obj], services.CHANGE, message if isinstance(message, str) else "changed in the admin")

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]
        if not self.services_record:
            services.record(request.user, list(queryset), services.DELETION, "deleted in the admin", before=_values_of)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirect to the row's events in the audit log."""
        query = {"kind": self.opts.model_name, "subject": object_id}
        return redirect(reverse("collections:audit", query=query))

    def _record(self, request: HttpRequest, rows: list[Model], verb: str, message: str) -> None:
        before, after = getattr(request, CHANGED, (None, None))
        if not self.services_record:
            services.record(request.user, rows, verb, message, before=before, after=after)


def _values_of(row: Model) -> dict[str, Any] | None:
    if row._meta.app_label not in SHOWN_APPS:
        return None
    return {field.name: _named(field.value_from_object(row)) for field in row._meta.concrete_fields}


def _named(value: Any) -> Any:
    """Rows by their names, in order."""
    if isinstance(value, QuerySet) or (isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)):
        return sorted(str(item) for item in value)
    return str(value) if isinstance(value, Model) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """How the rows of one model are listed, found and acted on; a line of an app's table.

    columns: fields or properties in order. filters, search, order, dates: `list_filter`, `search_fields`, `ordering`
    and `date_hierarchy` of Django. hidden: fields that are neither shown nor read for the list. actions: what may be
    done with chosen rows. page: the address of a row on the pages of the interface. deletable: who has the permission
    deletes rows. Which rows there are is limited by the row policies of the database, and to collections that live.
    """

    columns: tuple[str, ...]
    filters: tuple[Any, ...] = ()
    search: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    dates: str | None = None
    hidden: tuple[str, ...] = ()
    actions: tuple[Action, ...] = ()
    page: Callable[[Any], str] | None = None
    deletable: bool = False


def register(table: Mapping[type[Model], Listing], kind: type[ReadOnlyAdmin] | None = None) -> None:
    """Register every model of the table with the site, in place of what another app registered."""
    for model, listing in table.items():
        joined = [each.name for each in model._meta.concrete_fields if each.is_relation]
        if admin.site.is_registered(model):
            admin.site.unregister(model)
        admin.site.register(
            model,
            kind or ReadOnlyAdmin,
            listing=listing,
            list_select_related=tuple(name for name in joined if name in listing.columns),
            list_display=[display_of(model, name, in_list=True) for name in listing.columns],
            list_filter=listing.filters,
            search_fields=listing.search,
            ordering=listing.order or None,
            date_hierarchy=listing.dates,
            actions=listing.actions,
        )


def heavy_fields(model: type[Model]) -> set[str]:
    """Name the fields whose values are large."""
    return {field.name for field in model._meta.concrete_fields if isinstance(field, HEAVY)}


class ReadOnlyAdmin(AuditedAdmin):
    """Rows that services write: looked at here, changed only by actions."""

    listing: Listing
    list_per_page = 50
    list_select_related: ClassVar[tuple[str, ...]] = ()
    show_full_result_count = False

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        fields = {field.name: field for field in self.opts.concrete_fields}
        collection = fields.get("collection")
        if "deleted_at" in fields:
            rows = rows.filter(deleted_at=None)
        elif isinstance(collection, ForeignKey) and not collection.null:
            rows = rows.filter(collection__deleted_at=None)
        return rows.defer(*self._unlisted()) if is_list(request) else rows

    def _unlisted(self) -> list[str]:
        """Name what a list does not read, of its own rows and of those that they show."""
        own = heavy_fields(self.model) - {*self.listing.columns}
        fields = ((name, self.model._meta.get_field(name).related_model) for name in self.list_select_related)
        others = [f"{name}__{each}" for name, model in fields for each in heavy_fields(model)]
        return [*own, *self.listing.hidden, *others]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Every field that can be read, as people read it."""
        hidden = {*self.listing.hidden, *getattr(self.model, "encrypted_fields", ())}
        fields = [each for each in self.opts.concrete_fields if not isinstance(each, UNREADABLE)]
        return [display_of(self.model, each.name) for each in fields if each.name not in hidden]

    def get_view_on_site_url(self, obj: Any = None) -> str | None:
        return self.listing.page(obj) if self.listing.page and obj is not None else None

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """Add the list's actions for this one row, where the user may run any."""
        choices = self.get_action_choices(request)
        if kwargs.get("obj") is not None and len(choices) > 1:
            context["row_actions"] = form = self.action_form(auto_id="row_%s")
            form.fields["action"].choices = choices
            context["row_actions_address"] = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
        return super().render_change_form(request, context, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.listing.deletable and super().has_delete_permission(request, obj)

    def has_manage_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run actions that change rows of this model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    def has_erase_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run actions that delete rows, also where Django's own way is closed."""
        return request.user.has_perm(f"{self.opts.app_label}.delete_{self.opts.model_name}")

    def tell(self, request: HttpRequest, count: int, done: str, noun: str = "") -> None:
        """Say "2 jobs cancelled" where done is "cancelled"; a noun, as `counted` takes it, stands for the model's."""
        noun = noun or f"{self.opts.verbose_name},{self.opts.verbose_name_plural}"
        self.message_user(request, f"{counted(count, noun)} {done}.", messages.SUCCESS)


def row_action(
    description: str,
    change: Callable[[Any, Any], Any],
    done: str,
    *,
    name: str,
    noun: str = "",
    permission: str = MANAGE,
) -> Action:
    """Return an action that changes the chosen rows one after the other: change(row, user).

    A refusal is shown and holds up no other row. The message counts the changed rows; with a noun, the numbers that
    `change` returns.
    """

    @admin.action(description=description, permissions=[permission])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        count = 0
        for row in rows:
            try:
                result = change(row, request.user)
                count += result if noun else 1
            except (ServiceError, RagdError) as error:
                model_admin.message_user(request, f"{row}: {error.message}", messages.WARNING)
        model_admin.tell(request, count, done, noun)

    run.__name__ = name
    return run


def is_list(request: HttpRequest) -> bool:
    """Return whether the request is for a list of rows."""
    match = request.resolver_match
    return match is not None and str(match.url_name).endswith("_changelist")
