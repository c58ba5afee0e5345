"""The words and parts of the pages: icons, times, states, fields, links of lists, small pictures in SVG. Each once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.core.paginator import Page
from django.http import HttpRequest, QueryDict
from django.template import Context
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext, gettext_noop

from collections_app.audit import log
from collections_app.domain import formats
from collections_app.domain.formats import duration, span
from collections_app.http.page_requests import collection_titles
from collections_app.jobs.stages import StageRow
from collections_app.models import AuditEvent

register = template.Library()

RELATIVE_MAX = timedelta(days=30)  # what is older is shown by its date
THEMES = ("system", "light", "dark")

# state -> (tone, icon, word)
STATES: dict[str, tuple[str, str, str]] = {
    "queued": ("neutral", "clock", gettext_noop("Queued")),
    "running": ("accent", "refresh", gettext_noop("Running")),
    "succeeded": ("good", "check", gettext_noop("Succeeded")),
    "failed": ("bad", "cross", gettext_noop("Failed")),
    "quarantined": ("bad", "alert", gettext_noop("Quarantined")),
    "new": ("neutral", "clock", gettext_noop("Not synced yet")),
    "held": ("watch", "alert", gettext_noop("Awaits confirmation")),
    "waiting": ("neutral", "clock", gettext_noop("Pending")),
    "pending": ("neutral", "clock", gettext_noop("Pending")),
    "firing": ("bad", "alert", gettext_noop("Firing")),
    "resolved": ("good", "check", gettext_noop("Resolved")),
    "delivered": ("good", "check", gettext_noop("Delivered")),
    "interrupted": ("watch", "alert", gettext_noop("Interrupted")),
    "completed": ("good", "check", gettext_noop("Completed")),
    "completed_with_errors": ("watch", "alert", gettext_noop("Completed with errors")),
    "stuck": ("bad", "alert", gettext_noop("Stuck")),
    "closed": ("good", "check", gettext_noop("Available")),
    "open": ("bad", "alert", gettext_noop("Paused")),
    "half-open": ("watch", "clock", gettext_noop("Retrying")),
    "passed": ("good", "check", gettext_noop("Passed")),
    "cancelled": ("neutral", "minus", gettext_noop("Cancelled")),
    "ok": ("good", "check", gettext_noop("OK")),
    "answered": ("good", "check", gettext_noop("Answered")),
    "searched": ("neutral", "search", gettext_noop("Search")),
    "abstained": ("watch", "minus", gettext_noop("No answer")),
    "refused": ("watch", "cross", gettext_noop("Blocked")),
    "error": ("bad", "cross", gettext_noop("Error")),
    "enabled": ("good", "check", gettext_noop("Active")),
    "disabled": ("neutral", "minus", gettext_noop("Disabled")),
    "archived": ("neutral", "clock", gettext_noop("Archived")),
    "ready": ("good", "check", gettext_noop("Ready")),
    "ingesting": ("accent", "refresh", gettext_noop("Ingesting")),
    "empty": ("neutral", "minus", gettext_noop("Empty")),
    "alive": ("good", "check", gettext_noop("Alive")),
    "silent": ("bad", "alert", gettext_noop("No heartbeat")),
    "live": ("good", "check", gettext_noop("Live")),
    "expired": ("neutral", "clock", gettext_noop("Expired")),
    "revoked": ("bad", "cross", gettext_noop("Revoked")),
    "unset": ("neutral", "minus", gettext_noop("Unset")),
    "building": ("accent", "refresh", gettext_noop("Building")),
    "serving": ("good", "check", gettext_noop("Active")),
    "retired": ("neutral", "clock", gettext_noop("Inactive")),
    "dropped": ("neutral", "minus", gettext_noop("Deleted")),
    "complete": ("good", "check", gettext_noop("Complete")),
    "partly": ("watch", "alert", gettext_noop("Partial")),
    "missing": ("bad", "cross", gettext_noop("Missing")),
    "idle": ("neutral", "minus", gettext_noop("Not applicable")),
}
PLANNED: dict[str, tuple[str, str]] = {  # the words and tones of the upload page (static/js/upload.js)
    "new": ("good", gettext_noop("New")),
    "changed": ("watch", gettext_noop("Replace")),
    "renamed": ("accent", gettext_noop("Keep both")),
    "refetch": ("accent", gettext_noop("Check for changes")),
    "skipped": ("", gettext_noop("Skip")),
    "unchanged": ("", gettext_noop("Unchanged")),
    "rejected": ("bad", gettext_noop("Rejected")),
    "deleted": ("bad", gettext_noop("Delete")),
    "would_delete": ("bad", gettext_noop("Delete")),
}
TOASTS = {"error": ("bad", "alert"), "warning": ("watch", "alert"), "success": ("good", "check")}

for written in (
    formats.exactly, formats.file_type, formats.language_name, formats.page_label, formats.pretty, formats.shown,
    formats.stemming, formats.strategy, formats.words,
):  # fmt: skip
    register.filter(written)

for figure in (
    formats.amount, formats.counted, formats.dollars, duration, formats.number, formats.percent, formats.score,
    formats.seconds, formats.size,
):  # fmt: skip
    register.filter(figure.__name__, formats.localized(figure))


@register.simple_tag
def icon(name: str, extra: str = "") -> SafeString:
    """One symbol of the sprite (components/sprite.html), hidden from screen readers: a word stands beside it."""
    return format_html('<svg class="icon {}" aria-hidden="true"><use href="#i-{}"/></svg>', extra, name)


@register.simple_tag
def file_kind(media_type: str) -> SafeString:
    """What kind of file it is, as symbol and word."""
    drawn = icon(formats.file_symbol(media_type))
    return format_html('<span class="file-kind">{}<span>{}</span></span>', drawn, formats.file_type(media_type))


def chip(tone: str, *parts: object) -> SafeString:
    """A small label in the colour of its tone, "" for none: its parts one after the other."""
    return format_html('<span class="chip" data-tone="{}">{}</span>', tone, format_html_join("", "{}", zip(parts)))


@register.simple_tag(takes_context=True)
def theme(context: Context) -> str:
    """light, dark or system: what the person chose, from the cookie; system when there is no request or no choice."""
    request: HttpRequest | None = context.get("request")
    chosen = request.COOKIES.get("theme", "") if request is not None else ""
    return chosen if chosen in THEMES else "system"


@register.simple_tag(takes_context=True)
def called(context: Context, name: str) -> str:
    """What people call the collection of that name; the name itself where it has no other, or is no more."""
    request: HttpRequest | None = context.get("request")
    return collection_titles(request).get(name, name) if request is not None else name


@register.simple_tag
def state(name: str) -> SafeString:
    """A state as icon and word, coloured by its meaning."""
    tone, symbol, word = STATES.get(name, ("neutral", "minus", name.replace("_", " ").capitalize()))
    word = gettext(word)
    spin = "spin" if name in ("running", "ingesting", "building") else ""
    drawn = icon(symbol, spin)
    return format_html(
        '<span class="state" data-state="{}" data-tone="{}">{}<span class="word">{}</span></span>',
        name, tone, drawn, word,
    )  # fmt: skip


@register.simple_tag
def planned(status: str, total: int | None = None) -> SafeString:
    """What would happen to a document, as a chip; with a number behind the word where one is given."""
    tone, word = PLANNED.get(status, ("", status.replace("_", " ").capitalize()))
    return chip(tone, gettext(word) if total is None else f"{gettext(word)} {total:,}")


@register.filter
def who(name: str) -> str:
    """A name as `name_actor` stored it, in the reader's language."""
    return gettext("the system") if name == "the system" else name


@register.filter
def what_was_done(event: AuditEvent) -> str:
    """The words of an event of the audit log, with a capital letter in front; in other languages than English, in which
    it is written, and where it has none, its action."""
    if event.what_salt is None:
        return gettext("Details erased")
    message = event.message if (get_language() or "en").startswith("en") else ""
    return message[:1].upper() + message[1:] or log.action_words(event.action)


@register.filter
def action_words(action: str) -> str:
    return log.action_words(action)


@register.filter
def kind_words(kind: str) -> str:
    return log.kind_words(kind)


@register.filter
def audit_value(value: object) -> SafeString | str:
    """A value before or after a change: a text that is not kept by its length and hash, structures as JSON."""
    if isinstance(value, dict) and value.keys() == {"sha256", "chars"}:
        size = formats.counted(value["chars"], gettext("character,characters"))
        return format_html('{} <span class="sub mono">SHA-256 {}</span>', size, str(value["sha256"])[:16])
    if isinstance(value, dict | list):
        return format_html('<span class="mono small">{}</span>', json.dumps(value, ensure_ascii=False))
    if value is None or value == "":
        return format_html('<span class="muted">{}</span>', gettext("empty"))
    return {True: gettext("yes"), False: gettext("no")}[value] if isinstance(value, bool) else str(value)


@register.filter
def ago(moment: datetime | None) -> SafeString | str:
    """ "3 min ago" with the exact time in the markup and on hover; an en dash for None."""
    if moment is None:
        return "–"
    now = timezone.now()
    return _time_element(moment, spell_ago(moment, now), "date" if now - moment >= RELATIVE_MAX else "ago")


@register.filter
def exact_time(moment: datetime | None) -> SafeString | str:
    """ "2026-01-31 08:00" in UTC; static/js/ragd.js shows it in the time zone of the browser. An en dash for None."""
    if moment is None:
        return "–"
    return _time_element(moment, f"{timezone.localtime(moment):%Y-%m-%d %H:%M %Z}", "exact")


def _time_element(moment: datetime, text: str, form: str) -> SafeString:
    """form: what the script may replace: "ago" nothing but the title, "date" and "exact" the text too."""
    exact = timezone.localtime(moment)
    return format_html(
        '<time datetime="{}" title="{}" data-form="{}">{}</time>',
        exact.isoformat(timespec="seconds"),
        exact.strftime("%Y-%m-%d %H:%M:%S %Z"),
        form,
        text,
    )


def spell_ago(moment: datetime, now: datetime) -> str:
    """The distance in the largest whole unit; from 30 days on the date."""
    seconds = int((now - moment).total_seconds())
    if seconds < 0:
        return gettext("in %(span)s") % {"span": span(-seconds)}
    if seconds < 10:
        return gettext("just now")
    if seconds < RELATIVE_MAX.total_seconds():
        return gettext("%(span)s ago") % {"span": span(seconds)}
    return timezone.localtime(moment).strftime("%Y-%m-%d")


@register.filter
def without(values: Sequence[str] | None, unwanted: str) -> list[str]:
    """The values but the unwanted one; [] for None."""
    return [value for value in values or () if value != unwanted]


@register.filter
def toast(tags: str) -> tuple[str, str]:
    """(tone, icon) of a Django message by its tags."""
    return next((TOASTS[tag] for tag in tags.split() if tag in TOASTS), ("neutral", "info"))


@register.simple_tag
def stage_marks(rows: Sequence[StageRow]) -> SafeString:
    """One short bar per stage, coloured by its state and filled as far as it is; "" without stages."""
    if not rows:
        return SafeString("")
    width = 100 / len(rows)
    filled = {"waiting": 0.0, "running": 0.5}
    bars = format_html_join(
        "",
        '<g data-state="{}"><title>{}</title><rect class="track" x="{}" width="{}" height="6"/>'
        '<rect class="fill" x="{}" width="{}" height="6"/></g>',
        (
            (
                row.state,
                _spell_stage(row),
                f"{number * width:.1f}",
                f"{width - 4:.1f}",
                f"{number * width:.1f}",
                f"{(width - 4) * (row.percent / 100 if row.percent is not None else filled.get(row.state, 1.0)):.1f}",
            )
            for number, row in enumerate(rows)
        ),
    )
    return format_html(
        '<svg class="stage-marks" role="img" aria-label="{}" viewBox="0 0 100 6" preserveAspectRatio="none">{}</svg>',
        "; ".join(_spell_stage(row) for row in rows),
        bars,
    )


def _spell_stage(row: StageRow) -> str:
    word = gettext(STATES.get(row.state, ("", "", row.state))[2]).lower()
    share = f" {row.percent} %" if row.state == "running" and row.percent is not None else ""
    took = f", {duration(row.took_ms)}" if row.took_ms else ""
    return f"{row.stage}: {word}{share}{took}"


@register.simple_tag
def rank_change(gain: int | None) -> SafeString:
    """How many ranks were won (above 0) or lost, as a chip with arrow and words. "" for None and for no move."""
    if not gain:
        return SafeString("")
    tone, word = ("good", "up") if gain > 0 else ("watch", "down")
    return chip(tone, icon(word), format_html('<span class="sr-only">{} by </span>', word), abs(gain))


@register.inclusion_tag("components/field.html")
def field(bound: Any, label: str = "") -> dict[str, Any]:
    """A form field with its label above, help and errors beside it."""
    kind = getattr(bound.field.widget, "input_type", "")
    inline = kind == "checkbox" and not bound.use_fieldset  # one box, not a list of them
    needed = bound.field.required or kind == "select" or bound.name in getattr(bound.form, "either", ())
    return {"field": bound, "label": label or bound.label, "inline": inline, "optional": not needed}


@register.inclusion_tag("components/sort_head.html", takes_context=True)
def sort_head(context: Context, key: str, label: str, align: str = "") -> dict[str, Any]:
    """A table head that sorts by a link. The page's context names the current `sort`, with a minus when descending."""
    current = str(context.get("sort", ""))
    descending = current == f"-{key}"
    active = descending or current == key
    return {
        "label": label,
        "align": align,
        "direction": ("descending" if descending else "ascending") if active else "",
        "href": _with_query(context, sort=key if descending else (f"-{key}" if active else key), page=None),
        "target": context.get("sort_target", ""),
    }


@register.inclusion_tag("components/pager.html", takes_context=True)
def pager(context: Context, page: Page[Any], noun: str) -> dict[str, Any]:
    """Which rows are shown, and links to the pages around. Nothing is drawn when all rows fit."""
    before = _with_query(context, page=page.previous_page_number()) if page.has_previous() else ""
    after = _with_query(context, page=page.next_page_number()) if page.has_next() else ""
    return {"page": page, "noun": noun, "before": before, "after": after}


@register.simple_tag(takes_context=True)
def address_with(context: Context, **changes: str | int | None) -> str:
    """The address of the page itself with these parameters, on its first page; None or "" removes one."""
    return _with_query(context, **({"page": None} | {name: value or None for name, value in changes.items()}))


def _with_query(context: Context, **changes: str | int | None) -> str:
    """The address of the page itself with some parameters changed; None removes one."""
    request: HttpRequest = context["request"]
    query: QueryDict = request.GET.copy()
    for name, value in changes.items():
        if value is None:
            query.pop(name, None)
        else:
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag
def score_bar(value: float | None, text: str = "") -> SafeString:
    """A bar of 0..1 with its number. Below 0.3 it is drawn in the quiet colour."""
    share = min(max(value or 0.0, 0.0), 1.0)
    return format_html(
        '<span class="score" data-band="{}"><svg aria-hidden="true" preserveAspectRatio="none" viewBox="0 0 100 6">'
        '<rect class="track" width="100" height="6"/><rect class="fill" width="{}" height="6"/></svg>'
        "<output>{}</output></span>",
        "low" if share < 0.3 else "high",
        f"{100 * share:.1f}",
        text or f"{share:.2f}",
    )


@register.simple_tag
def sparkline(values: Sequence[float | None], label: str) -> SafeString:
    """A line over equal steps of time, oldest first; missing values are left out. "" where there is nothing to draw."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if len(known) < 3 or not any(value for _, value in known):
        return SafeString("")
    low, high = min(0.0, *(value for _, value in known)), max(value for _, value in known)
    reach = (high - low) or 1.0
    step = 96 / (len(values) - 1)
    points = [f"{index * step:.1f},{26 - 24 * (value - low) / reach:.1f}" for index, value in known]
    line = "M" + "L".join(points)
    area = f"{line}L{known[-1][0] * step:.1f},28L{known[0][0] * step:.1f},28Z"
    return format_html(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 96 28" preserveAspectRatio="none">'
        '<path class="area" d="{}"/><path d="{}"/></svg>',
        label,
        area,
        line,
    )


@register.simple_tag
def histogram(counts: Sequence[int], label: str) -> SafeString:
    """Bars of equal width, left to right."""
    bars = histogram_bars(counts, "", 0.06, 0.88, max(counts, default=0) or 1)
    return draw_histogram("histogram", label, bars)


def histogram_bars(counts: Sequence[int], kind: str, offset: float, breadth: float, highest: int) -> SafeString:
    """One bar per count. offset, breadth: of the room that each has, 0 to 1. kind: their class, "" for none."""
    width = 100 / max(len(counts), 1)
    return format_html_join(
        "",
        '<rect{} x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        (
            (
                format_html(' class="{}"', kind) if kind else "",
                f"{(index + offset) * width:.2f}",
                f"{60 - 58 * count / highest:.2f}",
                f"{width * breadth:.2f}",
                f"{58 * count / highest:.2f}",
                count,
            )
            for index, count in enumerate(counts)
        ),
    )


def draw_histogram(classes: str, label: str, bars: SafeString) -> SafeString:
    return format_html(
        '<svg class="{}" role="img" aria-label="{}" viewBox="0 0 100 60" preserveAspectRatio="none">{}'
        '<line x1="0" y1="60" x2="100" y2="60"/></svg>',
        classes,
        label,
        bars,
    )
