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

from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.errors import RagdError

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


Action = Callable[[Any, HttpRequest, QuerySet[Any]], None]


class ReadOnlyAdmin(Base):
    """Rows that services write: looked at here, changed only by actions.

    deletable: whoever has the permission may delete rows as Django does. list_deferred: fields that lists do not read.
    """

    list_per_page = 50
    show_full_result_count = False
    deletable = False
    list_deferred: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer(*self.list_deferred) if self.list_deferred and is_list(request) else rows

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.deletable and super().has_delete_permission(request, obj)

    def may_change(self, request: HttpRequest) -> bool:
        """Whether the user may run actions that change rows of this model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    has_manage_permission = may_change

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


def row_action(description: str, change: Callable[[Any, Any], Any], done: str, *, noun: str = "") -> Action:
    """An action that changes the chosen rows one after the other: change(row, user).

    A refusal is shown and holds up no other row. The message counts the changed rows, "2 jobs cancelled" where done is
    "cancelled"; with a noun, as `counted` takes it, the numbers that `change` returns.
    """

    @admin.action(description=description, permissions=["manage"])
    def run(model_admin: ReadOnlyAdmin, request: HttpRequest, rows: QuerySet[Any]) -> None:
        model_admin.do_each(request, rows, change, done, noun)

    return run


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
