"""The tabs of a collection and what stands below each: the one list that its pages read.

A page says by `tab` in its context which entry it is. A tab leads to the first of its entries that is offered.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission
from collections_app.models import Collection


@dataclass(frozen=True, slots=True)
class Entry:
    """One page of a collection. key: what the page's context says. needs: the permission in the collection."""

    key: str
    view: str
    label: str
    needs: Permission = Permission.READ

    @property
    def title(self) -> str:
        return gettext(self.label)


@dataclass(frozen=True, slots=True)
class Tab:
    label: str
    entries: tuple[Entry, ...]


TABS = (
    Tab(
        gettext_noop("Documents"),
        (
            Entry("documents", "collections:detail", gettext_noop("Documents")),
            Entry("sources", "collections:sources", gettext_noop("Sources"), Permission.WRITE),
            Entry("jobs", "collections:jobs", gettext_noop("Jobs")),
            Entry("trash", "collections:trash", gettext_noop("Trash"), Permission.WRITE),
        ),
    ),
    Tab(
        gettext_noop("Chunking and index"),
        (
            Entry("chunking", "collections:preview-sample", gettext_noop("Chunking")),
            Entry("generations", "collections:generations", gettext_noop("Index versions")),
            Entry("gate", "evaluation:gate", gettext_noop("Quality gate"), Permission.EVALUATE),
        ),
    ),
    Tab(
        gettext_noop("Playground"),
        (Entry("playground", "retrieval:playground", gettext_noop("Playground"), Permission.ASK),),
    ),
    Tab(
        gettext_noop("Quality"),
        (
            Entry("outliers", "collections:outliers", gettext_noop("Chunk issues")),
            Entry("findings", "collections:findings", gettext_noop("Security scan")),
            Entry("gaps", "evaluation:content-gaps", gettext_noop("Content gaps")),
        ),
    ),
    Tab(
        gettext_noop("Settings"),
        (
            Entry("settings", "collections:settings", gettext_noop("Settings"), Permission.WRITE),
            Entry("sharing", "collections:sharing", gettext_noop("Sharing"), Permission.ADMINISTER),
            Entry("statistics", "collections:statistics", gettext_noop("Statistics")),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Link:
    """key: of the entry that it leads to. current: "page" for the page itself, "true" for the tab of one below it."""

    key: str
    title: str
    href: str
    current: str


def tab_links(collection: Collection, here: str) -> tuple[list[Link], list[Link]]:
    """The tabs that hold anything for the reader, and the entries of the one that `here` is in: [] for a single one."""
    access = current_access()
    tabs: list[Link] = []
    below: list[Link] = []
    for tab in TABS:
        offered = [entry for entry in tab.entries if access.may(entry.needs, collection.pk)]
        if not offered:
            continue
        is_here = here in (entry.key for entry in tab.entries)
        first = _link(offered[0], collection, here)
        current = first.current or ("true" if is_here else "")
        tabs.append(Link(first.key, gettext(tab.label), first.href, current))
        if is_here and len(offered) > 1:
            below = [_link(entry, collection, here) for entry in offered]
    return tabs, below


def _link(entry: Entry, collection: Collection, here: str) -> Link:
    return Link(
        entry.key, entry.title, reverse(entry.view, args=[collection.name]), "page" if entry.key == here else ""
    )
