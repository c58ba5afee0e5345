"""What goes on by itself or for whole collections, for the Operations page: checks, retention, exports, deletions."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from collections_app.http.page_requests import PageRequest, render_page
from collections_app.models import Operation
from collections_app.services.collections.operations import last_operation

RECENT = 8


@dataclass(frozen=True, slots=True)
class Upkeep:
    """check: the newest of everything. removed: (what, how many) of the last retention. recent: of the other kinds."""

    check: Operation | None
    retention: Operation | None
    removed: list[tuple[str, int]]
    recent: list[Operation]

    @property
    def is_busy(self) -> bool:
        return any(each.is_running for each in (self.check, *self.recent) if each is not None)


def read_upkeep() -> Upkeep:
    retention = last_operation(Operation.Kind.RETENTION)
    removed = [(name, count) for name, count in (retention.report if retention else {}).items() if count]
    others = Operation.objects.exclude(kind=Operation.Kind.RETENTION).exclude(kind=Operation.Kind.CHECK, subject="")
    return Upkeep(last_operation(Operation.Kind.CHECK, ""), retention, removed, list(others[:RECENT]))


@require_GET
def upkeep(request: PageRequest) -> HttpResponse:
    context = {"upkeep": read_upkeep()}
    return render_page(request, "evaluation/upkeep.html", context, parts={"upkeep": "evaluation/parts/upkeep.html"})
