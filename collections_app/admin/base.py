"""What every list of the admin here is: looked at, changed only by actions over services."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from collections_app.admin import internals
from collections_app.admin.readable import display_of
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.errors import RagdError

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


Action = Callable[[Any, HttpRequest, QuerySet[Any]], None]
MANAGE, ERASE = "manage", "erase"  # what actions ask for: the permission to change rows, and the one to delete them


class ReadOnlyAdmin(Base):
    """Rows that services write: looked at here, changed only by actions.

    deletable, addable: whoever has the permission may delete or add rows; add_view of an addable one makes them by
    services. list_deferred: fields that lists do not read. internal: left out of the index unless the session asks.
    """

    list_per_page = 50
    show_full_result_count = False
    deletable = False
    addable = False
    internal = False
    list_deferred: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer(*self.list_deferred) if self.list_deferred and is_list(request) else rows

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        """What the index and the side bar ask for; pages open by their address all the same."""
        perms = super().get_model_perms(request)
        return dict.fromkeys(perms, False) if self.internal and not internals.are_shown(request) else perms

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Those of Django, with fields that people can read."""
        return [
            (title, {**options, "fields": [self._readable(name) for name in options["fields"]]})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def _readable(self, name: Any) -> Any:
        known = {field.name for field in self.opts.fields}
        return display_of(self.model, name) if name in known else name

    def row_tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        """(words, address) of what a row's page leads to."""
        return []

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> Any:
        """With the list's actions for this one row, where the user may run any."""
        obj = kwargs.get("obj")
        if obj is not None:
            context["row_tools"] = self.row_tools(request, obj)
            choices = self.get_action_choices(request)
            if len(choices) > 1:
                context["row_actions"] = form = self.action_form(auto_id="row_%s")
                form.fields["action"].choices = choices
                context["row_actions_address"] = reverse(changelist_of(self.opts))
        return super().render_change_form(request, context, *args, **kwargs)

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return self.addable and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.deletable and super().has_delete_permission(request, obj)

    def may_change(self, request: HttpRequest) -> bool:
        """Whether the user may run actions that change rows of this model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    has_manage_permission = may_change

    def has_erase_permission(self, request: HttpRequest) -> bool:
        """Whether the user may run actions that delete rows of this model, also where Django's own way is closed."""
        return request.user.has_perm(f"{self.opts.app_label}.delete_{self.opts.model_name}")

    def do_each(
        self, request: HttpRequest, rows: Iterable[Any], change: Callable[[Any, Any], Any], done: str, noun: str = ""
    ) -> None:
        """As `row_action` does."""
        count = 0
        for row in rows:
            try:
                result = change(row, request.user)
                count += result if noun and isinstance(result, int) else 1
            except (ServiceError, RagdError) as error:
                self.message_user(request, f"{row}: {error.message}", messages.WARNING)
        self.tell(request, count, noun or f"{self.opts.verbose_name},{self.opts.verbose_name_plural}", done)

    def tell(self, request: HttpRequest, count: int, noun: str, done: str) -> None:
        self.message_user(request, f"{counted(count, noun)} {done}.", messages.SUCCESS)


class CollectionRowsAdmin(ReadOnlyAdmin):
    """Rows with a `collection`; those of deleted ones are left out."""

    list_select_related = ("collection",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(collection__deleted_at__isnull=True)


def row_action(
    description: str, change: Callable[[Any, Any], Any], done: str, *, noun: str = "", permission: str = MANAGE
) -> Action:
    """An action that changes the chosen rows one after the other: change(row, user).

    A refusal is shown and holds up no other row. The message counts the changed rows, "2 jobs cancelled" where done is
    "cancelled"; with a noun, as `counted` takes it, the numbers that `change` returns.
    """

    @admin.action(description=description, permissions=[permission])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        model_admin.do_each(request, rows, change, done, noun)

    return run


def changelist_of(options: Any) -> str:
    """The name of the address of a model's list."""
    return f"admin:{options.app_label}_{options.model_name}_changelist"


def is_list(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and str(match.url_name).endswith("_changelist")


def per_collection(rows: QuerySet[Any, Any], work: Callable[[Collection, list[str]], int]) -> int:
    """Call `work` once per collection with the doc_ids of its rows; the sum of what it returns."""
    groups: dict[Collection, list[str]] = defaultdict(list)
    for row in rows.select_related("collection"):
        groups[row.collection].append(row.doc_id)
    return sum(work(collection, ids) for collection, ids in groups.items())


def list_link(model: str, count: int, **query: Any) -> SafeString:
    """A number that leads to the rows which it counts."""
    address = reverse(f"admin:collections_app_{model}_changelist", query=query)
    return format_html('<a href="{}">{}</a>', address, count)


def page_link(words: str, name: str, *args: Any) -> SafeString:
    """A way to the page of the interface that does what the admin does not."""
    return format_html('<a href="{}">{}</a>', reverse(name, args=args), words)
