"""Where the command palette leads."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models.functions import Collate
from django.urls import reverse

from collections_app.models import Collection, Document
from evaluation_app.models import GoldenSet
from evaluation_app.pages.dashboard.runs_page import filtered_runs
from retrieval_app.models import QueryRun

FOUND_PER_GROUP = 6

# name of the address, symbol, label, other words for it
PAGES = (
    ("evaluation:home", "home", "Home", "start overview"),
    ("collections:list", "collections", "Collections", "documents"),
    ("retrieval:ask", "ask", "Ask", "question search answer"),
    ("retrieval:runs", "runs", "Runs", "queries history log"),
    ("evaluation:index", "evaluation", "Evaluation", "dashboard scores trend metrics quality"),
    ("evaluation:evaluation-runs", "evaluation", "Evaluation runs", "scores history"),
    ("evaluation:new-evaluation-run", "plus", "New evaluation run", "start evaluate judge"),
    ("evaluation:golden-sets", "evaluation", "Test sets", "golden questions expected dataset"),
    ("evaluation:compare", "evaluation", "Compare evaluation runs", "regressed improved difference"),
    ("evaluation:sweeps", "evaluation", "Sweeps", "grid of settings tune"),
    ("evaluation:board", "evaluation", "Failure analysis", "failure modes failed questions fix"),
    ("evaluation:review", "person", "Human review", "human people judge agreement kappa"),
    ("evaluation:live", "evaluation", "Online evaluation", "sampling scored answers"),
    ("evaluation:traces", "traces", "Traces", "spans telemetry"),
    ("evaluation:operations", "operations", "Operations", "workers queue jobs storage"),
    ("evaluation:prices", "admin", "Model pricing", "cost spent dollars tokens"),
    ("evaluation:status", "check", "Conformance", "status specification rules versions"),
    ("evaluation:evidence", "print", "Audit evidence", "compliance eu ai act nist owasp atlas report audit"),
    ("collections:create", "plus", "New collection", "make create"),
    ("api:openapi-view", "runs", "API reference", "docs openapi rest json"),
)
STAFF_PAGES = (
    ("admin:index", "admin", "Admin", "settings users"),
    ("admin:collections_app_apikey_changelist", "key", "API keys", "bearer secret"),
)


@dataclass(frozen=True, slots=True)
class Destination:
    href: str
    symbol: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    destinations: list[Destination]


def find_destinations(words: str, *, is_staff: bool) -> list[Group]:
    """Groups that are not empty. Without words: the pages and the first collections."""
    groups = [Group("Pages", _pages(words, is_staff)), Group("Collections", _collections(words))]
    if words:
        groups.append(Group("Playgrounds", _playgrounds(words)))
        groups += [Group("Documents", _documents(words)), Group("Runs", _runs(words))]
        groups += [Group("Test sets", _golden_sets(words)), Group("Evaluation runs", _evaluation_runs(words))]
    return [group for group in groups if group.destinations]


def _pages(words: str, is_staff: bool) -> list[Destination]:
    known = PAGES + (STAFF_PAGES if is_staff else ())
    requested = words.lower()
    result = [page for page in known if requested in f"{page[2]} {page[3]}".lower()]
    return [Destination(reverse(name), symbol, label) for name, symbol, label, _ in result]


def _collections(words: str) -> list[Destination]:
    # the name is collated "C", whose upper() knows ASCII only
    named = Collection.objects.live().by_name().alias(folded_name=Collate("name", "default"))
    rows = named.filter(folded_name__icontains=words)[:FOUND_PER_GROUP]
    return [Destination(reverse("collections:detail", args=[row.name]), "collections", row.name) for row in rows]


def _playgrounds(words: str) -> list[Destination]:
    """Of the collections that are found; of the first ones for the word itself."""
    names_the_page = len(words) > 2 and "playground".startswith(words.lower())
    destinations = _collections("" if names_the_page else words)
    return [
        Destination(reverse("retrieval:playground", args=[item.label]), "evaluation", item.label, "why this ranking")
        for item in destinations
    ]


def _documents(words: str) -> list[Destination]:
    live = Document.objects.listed().filter(collection__deleted_at__isnull=True).select_related("collection")
    rows = live.matching(words).newest()[:FOUND_PER_GROUP]
    return [Destination(_address(row), "file", row.name, row.collection.name) for row in rows]


def _address(document: Document) -> str:
    return reverse("collections:document", args=[document.collection.name, document.doc_id])


def _runs(words: str) -> list[Destination]:
    rows = QueryRun.objects.filtered(text=words).for_lists()[:FOUND_PER_GROUP]
    return [Destination(row.get_absolute_url(), "runs", row.query[:120], row.collection_name) for row in rows]


def _golden_sets(words: str) -> list[Destination]:
    """By name, each to its dashboard."""
    rows = [] if "\x00" in words else GoldenSet.objects.filter(name__icontains=words)[:FOUND_PER_GROUP]
    index = reverse("evaluation:index")
    return [Destination(f"{index}?set={row.pk}", "evaluation", row.name, row.collection_name) for row in rows]


def _evaluation_runs(words: str) -> list[Destination]:
    """By their own name or that of their set, newest first."""
    rows = [] if "\x00" in words else filtered_runs(text=words, purpose="all")[:FOUND_PER_GROUP]
    return [Destination(row.get_absolute_url(), "evaluation", str(row), row.set_name) for row in rows]
