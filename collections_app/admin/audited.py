"""What the admin itself saves and deletes, in the audit log, where the histories of its rows are read too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from collections_app.admin.base import Base
from collections_app.services.governance import audit

CHANGED = "_audit_changed"
SHOWN_APPS = frozenset({"auth"})  # of whose deleted rows the values are kept; others may hold texts


class AuditedAdmin(Base):
    """Mixed in before a model's own admin. services_record: its services write the events, the admin writes none."""

    services_record = False

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Django's, and beside it what the fields were and are."""
        names = [name for name in form.changed_data if name in form.cleaned_data]
        after = {name: _readable(form.cleaned_data[name]) for name in names}
        before = None if add else {name: _readable(form.initial.get(name)) for name in names}
        setattr(request, CHANGED, (before, after))
        return super().construct_change_message(request, form, formsets, add)

    def log_addition(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        self._record(request, [obj], audit.ADDITION, "added in the admin")

    def log_change(self, request: HttpRequest, obj: Model, message: Any) -> None:  # type: ignore[override]
        self._record(request, [obj], audit.CHANGE, message if isinstance(message, str) else "changed in the admin")

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]
        if not self.services_record:
            audit.record(request.user, list(queryset), audit.DELETION, "deleted in the admin", before=_values_of)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """The row's events in the audit log."""
        query = {"kind": self.opts.model_name, "subject": object_id}
        return redirect(reverse("collections:audit", query=query))

    def _record(self, request: HttpRequest, rows: list[Model], verb: str, message: str) -> None:
        before, after = getattr(request, CHANGED, (None, None))
        if not self.services_record:
            audit.record(request.user, rows, verb, message, before=before, after=after)


def audit_admin(site: AdminSite) -> None:
    """Let every admin of the site write to the audit log; called when all of them are registered."""
    for model, model_admin in list(site._registry.items()):
        if not isinstance(model_admin, AuditedAdmin):
            own = type(model_admin)
            audited = type(
                own.__name__,
                (AuditedAdmin, own),
                {"__module__": own.__module__, "services_record": getattr(own, "services_record", False)},
            )
            site._registry[model] = audited(model, site)


def _values_of(row: Model) -> dict[str, Any] | None:
    if row._meta.app_label not in SHOWN_APPS:
        return None
    return {field.name: _readable(field.value_from_object(row)) for field in row._meta.concrete_fields}


def _readable(value: Any) -> Any:
    """Rows by their names, in order."""
    if isinstance(value, QuerySet) or (isinstance(value, Iterable) and not isinstance(value, str | bytes | dict)):
        return sorted(str(item) for item in value)
    return str(value) if isinstance(value, Model) else value
