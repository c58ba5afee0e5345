"""Settings › Retention: how long each kind of data is kept, what the last deletion removed, what the next one will."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy

from collections_app.access.rules import ADMINISTER, needs
from collections_app.collections.retention import overriding, set_period
from collections_app.collections.retention_periods import (
    DATABASE,
    DAYS,
    ENVIRONMENT,
    MEGABYTES,
    PERIODS,
    KeptFor,
    find_period,
)
from collections_app.domain.formats import counted
from collections_app.http.page_requests import PageRequest, field_of, is_part, render_page, submit_form
from collections_app.jobs.maintenance import ORPHAN_KEPT
from collections_app.jobs.operations import KEPT_PER_KIND
from evaluation_app.models.spans import ALERTS_KEEP_DAYS
from evaluation_app.runs.lifecycle import LastDeletion, count_due, last_deletions

# by the key of a period: its name, what is part of it, what 0 means
TEXTS = {
    "runs_days": (
        gettext_lazy("Query runs"),
        gettext_lazy("With the spans of their traces, scores and feedback; a conversation goes with its query runs."),
        gettext_lazy("no limit"),
    ),
    "span_days": (
        gettext_lazy("Spans"),
        gettext_lazy("Deleted by whole partitions of a day or more."),
        gettext_lazy("no limit"),
    ),
    "span_mb": (gettext_lazy("Spans on disk"), gettext_lazy("The oldest are deleted first."), gettext_lazy("no limit")),
    "evaluation_days": (
        gettext_lazy("Evaluation runs"),
        gettext_lazy("Baselines and the newest run of each test set stay."),
        gettext_lazy("no limit"),
    ),
    "trash_days": (
        gettext_lazy("Documents and collections in the trash"),
        gettext_lazy("With all that belongs to them."),
        gettext_lazy("deleted at once"),
    ),
    "revisions": (gettext_lazy("Earlier revisions"), gettext_lazy("Of each document."), gettext_lazy("none")),
    "deleted_days": (
        gettext_lazy("Content of deleted documents"),
        gettext_lazy("For searches as of an earlier time."),
        gettext_lazy("deleted at once"),
    ),
    "index_version_days": (
        gettext_lazy("Previous index version"),
        gettext_lazy("Of each collection, to switch back to."),
        gettext_lazy("deleted at the next cleanup"),
    ),
}
PARTS = {"retention": "evaluation/parts/retention.html"}
DUE = {"retention-due": "evaluation/parts/retention_due.html"}


@dataclass(frozen=True, slots=True)
class RetentionRow:
    """One kind of data. own: collections with a value of their own, by name. removed: by the last deletion, None before
    the first. removing: the last one that removed some: (when, how many). due: how many rows the next one removes;
    None: not counted in time, or not yet.
    """

    kept: KeptFor
    own: list[tuple[str, str]]
    removed: int | None
    removing: tuple[datetime, int] | None
    due: int | None

    @property
    def key(self) -> str:
        return self.kept.period.key

    @property
    def title(self) -> str:
        return str(TEXTS[self.key][0])

    @property
    def about(self) -> str:
        return str(TEXTS[self.key][1])

    @property
    def amount(self) -> str:
        return amount_of(self.kept, self.kept.value)


class PeriodForm(forms.Form):
    """One value. Empty: the default."""

    value = forms.IntegerField(required=False, min_value=0)

    def __init__(self, data: Any, kept: KeptFor) -> None:
        super().__init__(data, initial={"value": kept.value if kept.source == DATABASE else None})
        field = field_of(self, "value", forms.IntegerField)
        field.max_value = kept.period.most
        field.label = {DAYS: gettext("Days"), MEGABYTES: "MB"}.get(kept.period.unit, gettext("Revisions"))
        field.widget.attrs |= {"placeholder": str(kept.default), "max": str(kept.period.most)}
        field.help_text = gettext("0: %(meaning)s. Empty: the default, %(default)s.") % {
            "meaning": TEXTS[kept.period.key][2],
            "default": amount_of(kept, kept.default),
        }


def amount_of(kept: KeptFor, value: int) -> str:
    """A value in words, such as "30 days"."""
    if value == 0:
        return str(TEXTS[kept.period.key][2])
    if kept.period.unit == MEGABYTES:
        return f"{value:,} MB"
    return counted(value, gettext("day,days") if kept.period.unit == DAYS else gettext("revision,revisions"))


def list_fixed() -> list[tuple[str, str]]:
    """What no setting shortens: (its name, how long it is kept)."""
    days = gettext("day,days")
    return [
        (gettext("Documents and their files"), gettext("Until somebody deletes them.")),
        (gettext("Conversations"), gettext("As long as their query runs.")),
        (gettext("Uploaded files that no document and no job needs"), counted(ORPHAN_KEPT.days, days)),
        (gettext("Resolved alerts"), counted(ALERTS_KEEP_DAYS, days)),
        (
            gettext("Operations, but bisections"),
            gettext("The newest %(count)s of each kind.") % {"count": KEPT_PER_KIND},
        ),
        (gettext("Audit log"), gettext("For good; erasures empty the parts that they name.")),
    ]


def read_rows(due: dict[str, int | None], last: LastDeletion) -> list[RetentionRow]:
    """In the order of PERIODS."""
    rows = []
    for key, period in PERIODS.items():
        kept = find_period(key)
        own = overriding(key) if period.of_collection else {}
        removed = None if last.at is None else int(last.removed.get(period.report, 0))
        values = [(name, amount_of(kept, value)) for name, value in own.items()]
        rows.append(RetentionRow(kept, values, removed, last.removing.get(period.report), due.get(key)))
    return rows


@needs(ADMINISTER, everywhere=True, methods="GET")
def retention(request: PageRequest) -> HttpResponse:
    """The table without counts of what is due; its part, and count=on, with them."""
    counts = is_part(request, PARTS) or bool(request.GET.get("count"))
    due = count_due({key: find_period(key).value for key in PERIODS}) if counts else {}
    last = last_deletions()
    context = {
        "rows": read_rows(due, last),
        "is_counted": counts,
        "last": last,
        "fixed": list_fixed(),
        "environment": ENVIRONMENT,
        "database": DATABASE,
    }
    return render_page(request, "evaluation/retention.html", context, parts=PARTS)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def change_period(request: PageRequest, period: str) -> HttpResponse:
    """The form of one value; with do=count, how many rows the value that is filled in would delete, and nothing is
    saved."""
    if period not in PERIODS:
        raise Http404(f"nothing is kept under the name {period!r}; the names are {', '.join(PERIODS)}")
    kept = find_period(period)
    form = PeriodForm(request.POST if request.method == "POST" else None, kept)
    context: dict[str, Any] = {"form": form, "row": RetentionRow(kept, [], None, None, None), "kept": kept}
    context |= {"is_stated": kept.source == ENVIRONMENT, "variable": kept.period.variable}

    def save() -> HttpResponse:
        value = form.cleaned_data["value"]
        if request.POST.get("do") == "count":
            value = kept.default if value is None else value
            context.update(is_tried=True, tried=amount_of(kept, value), due=count_due({period: value})[period])
            return render_page(request, "evaluation/retention_period.html", context, parts=DUE)
        now = set_period(period, value, actor=request.user)
        done = {"name": TEXTS[period][0], "amount": amount_of(now, now.value)}
        messages.success(request, gettext("%(name)s: %(amount)s. The next deletion goes by it.") % done)
        return redirect(reverse("operations:server-settings", query={"view": "retention"}))

    response, status = submit_form(request, form, save)
    return response or render_page(request, "evaluation/retention_period.html", context, parts=DUE, status=status)
