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

from collections_app.errors import ServiceError
from collections_app.models import Collection
from collections_app.templatetags.interface import counted
from ragd.errors import RagdError

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin


class ReadOnlyAdmin(Base):
    """Rows that services write: looked at here, changed only by actions."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def may_change(self, request: HttpRequest) -> bool:
        """Whether the user may run actions that change rows of this model."""
        return request.user.has_perm(f"{self.opts.app_label}.change_{self.opts.model_name}")

    has_manage_permission = may_change

    def do_each(self, request: HttpRequest, rows: Iterable[Any], change: Callable[[Any], object], done: str) -> None:
        """Change one row after the other; a refusal is told and holds up no other. done: "cancelled"."""
        changed = 0
        for row in rows:
            try:
                change(row)
                changed += 1
            except (ServiceError, RagdError) as error:
                self.message_user(request, f"{row}: {error.message}", messages.WARNING)
        noun = f"{self.opts.verbose_name},{self.opts.verbose_name_plural}"
        self.message_user(request, f"{counted(changed, noun)} {done}.", messages.SUCCESS)


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
