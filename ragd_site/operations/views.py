"""Home, operations, maintenance, the nodes of a cluster, the conformance page and the leak probe.

The command palette: where one can go, and what can be done from every page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Collate
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext, gettext_lazy, gettext_noop, ngettext

from collections_app.access.context import current_access, elevated
from collections_app.access.people import name_administrators
from collections_app.access.permissions import Permission
from collections_app.access.rules import ADMINISTER, needs
from collections_app.errors import ServiceError
from collections_app.http.navigation import Page, Reader, address_named, administers, all_pages, evaluates, somewhere
from collections_app.http.page_requests import (
    PageRequest,
    collection_titles,
    field_of,
    is_part,
    render_page,
    run_action,
)
from collections_app.index.cluster import plan_moves, read_cluster, rebalance, recover
from collections_app.index.measurements import low_recalls
from collections_app.index.stores import has_replica, replica_state
from collections_app.jobs.operations import arriving_collection, last_operation
from collections_app.jobs.views import changing
from collections_app.jobs.workers import backup_state
from collections_app.models import Collection, Document, Operation
from evaluation_app.conformance import CONFORMANCE, SHOWN_RESULTS, group_rules, read_versions, request_run
from evaluation_app.models import GoldenSet
from evaluation_app.runs.requests import under_way
from evaluation_app.runs.run_pages.run_page import docs_address
from evaluation_app.runs.run_pages.runs_page import find_runs
from evaluation_app.sample import SAMPLE_NAME
from evaluation_app.telemetry.store.span_store import collector_state
from ragd_site.operations.leak_probe import ProbeReport, probe
from ragd_site.operations.summaries import (
    attention_summary,
    index_builds,
    operations_summary,
    retry_all_failed,
    storage_summary,
    work_summary,
)
from retrieval_app.chat.assistants import askable
from retrieval_app.chat.views import describe_page
from retrieval_app.models import QueryRun
from retrieval_app.runs.models import RunFilter

RECENT = 8
ARRIVING = {"arriving": "evaluation/parts/arriving.html"}
ARRIVED = {"arriving": "retrieval/chat/arrived.html"}  # beside a question that is being typed
CONFORMANCE_DOCS = "docs/conformance.md"


@dataclass(frozen=True, slots=True)
class UpkeepSummary:
    """check: the newest of everything. removed: (what, how many) of the last retention. recent: of the other kinds."""

    check: Operation | None
    retention: Operation | None
    removed: list[tuple[str, int]]
    recent: list[Operation]

    @property
    def is_busy(self) -> bool:
        return any(each.is_running for each in (self.check, *self.recent) if each is not None)


def read_upkeep() -> UpkeepSummary:
    retention = last_operation(Operation.Kind.RETENTION)
    removed = [(name, count) for name, count in (retention.report if retention else {}).items() if count]
    others = Operation.objects.exclude(kind=Operation.Kind.RETENTION).exclude(kind=Operation.Kind.CHECK, subject="")
    return UpkeepSummary(last_operation(Operation.Kind.CHECK, ""), retention, removed, list(others[:RECENT]))


@needs(None, methods="GET")
def home(request: PageRequest) -> HttpResponse:
    """A new thread, where one asks and adds files, under what needs attention."""
    collections = list(Collection.objects.live().by_name())
    if is_part(request, ARRIVING) and (arriving := arriving_collection()):
        return render_page(request, "evaluation/home.html", {"arriving": arriving}, parts=ARRIVING)
    context = describe_page(request, None, collections)
    if is_part(request, ARRIVED):
        return render_page(request, "evaluation/home.html", context, parts=ARRIVED)
    context |= {"summary": attention_summary()}
    if not current_access().may_anywhere(Permission.READ):
        context["administrators"] = name_administrators()
    return render_page(request, "evaluation/home.html", context)


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def operations(request: PageRequest) -> HttpResponse:
    """POST with do=retry: everything that failed, in all collections."""
    if request.method == "POST":
        return run_action(request, changing({"retry": retry_all_failed}, actor=request.user), "operations:operations")
    parts = {name: f"evaluation/parts/{name}.html" for name in ("operations", "storage", "upkeep")}
    if is_part(request, ["storage"]):
        return render_page(request, "evaluation/operations.html", {"storage": storage_summary()}, parts=parts)
    if is_part(request, ["upkeep"]):
        return render_page(request, "evaluation/operations.html", {"upkeep": read_upkeep()}, parts=parts)
    summary = operations_summary()
    context: dict[str, Any] = {
        "summary": summary,
        "queries_total": sum(summary.runs_by_status.values()),
        "work": work_summary(),
        "builds": index_builds(),
        "replica": replica_state() if has_replica() else None,
        "low_recall": low_recalls(),
        "collector": collector_state(),
        "evaluations": under_way(),
        "backups": backup_state(),
    }
    if not is_part(request, parts):
        context |= {"storage": storage_summary(), "upkeep": read_upkeep()}
    return render_page(request, "evaluation/operations.html", context, parts=parts)


@needs(None, ADMINISTER, everywhere=True, methods="GET POST")
def status(request: PageRequest) -> HttpResponse:
    """The rules of the specification and how the last run over this database found them; a POST asks for a run.

    result=ID: an older run.
    """
    if request.method == "POST":
        return _try_rules(request)
    results = list(Operation.objects.filter(kind=CONFORMANCE)[:SHOWN_RESULTS])
    shown = _shown_result(request, results)
    rules = shown.report.get("rules", []) if shown else []
    context = {
        "versions": read_versions(),
        "result": shown,
        "chapters": group_rules(rules),
        "rules_count": len(rules),
        "rules_passed": sum(rule["passed"] for rule in rules),
        "running": next((result for result in results if result.verdict == "running"), None),
        "results": results,
        "has_docs": bool(docs_address(CONFORMANCE_DOCS)),
        "docs": (SAMPLE_NAME, CONFORMANCE_DOCS),
    }
    parts = {"conformance": "evaluation/parts/conformance.html"}
    return render_page(request, "evaluation/status.html", context, parts=parts)


def _shown_result(request: PageRequest, results: list[Operation]) -> Operation | None:
    """The one that the address names, else the newest that is not under way. Http404 for one that is not there."""
    requested = request.GET.get("result", "")
    if requested:
        try:
            return get_object_or_404(Operation, pk=UUID(requested), kind=CONFORMANCE)
        except ValueError:
            raise Http404(f"result must be an id, not {requested!r}") from None
    return next((result for result in results if result.verdict != "running"), None)


def _try_rules(request: PageRequest) -> HttpResponse:
    """Ask the worker for a run, then back to the page, which shows it."""
    result = request_run(request.user)
    result.refresh_from_db()
    if result.error:
        messages.error(request, gettext("The check failed: %(error)s.") % {"error": result.error})
    return redirect(reverse("operations:operations", query={"view": "conformance"}))


@needs(ADMINISTER, everywhere=True, methods="GET POST")
def cluster(request: PageRequest) -> HttpResponse:
    """POST with do=rebalance or do=recover."""
    if request.method == "POST":
        try:
            with elevated(Permission.ADMINISTER):
                _change(request)
        except ServiceError as error:
            messages.error(request, str(error))
        return redirect(reverse("operations:operations", query={"view": "cluster"}))
    with elevated(Permission.ADMINISTER):  # who is bound may not see how far replicas are
        state = read_cluster()
    context = {"state": state, "moves": plan_moves(state.shards, state.nodes)}
    context["rows"] = [(each, [state.address_of(group) for group in each.groups]) for each in state.versions]
    return render_page(request, "evaluation/cluster.html", context)


def _change(request: PageRequest) -> None:
    if request.POST.get("do") == "recover":
        count = recover(request.user)
        text = ngettext("%(count)d prepared transaction ended.", "%(count)d prepared transactions ended.", count)
    else:
        count = len(rebalance(request.user))
        text = ngettext("%(count)d shard moved.", "%(count)d shards moved.", count)
    messages.success(request, text % {"count": count} if count else gettext("Nothing to do."))


ROUNDS = 1  # of the page, which answers when all is asked; the command asks more


class ProbeForm(forms.Form):
    person = forms.ModelChoiceField(label=gettext_lazy("Person"), queryset=User.objects.none())
    collection = forms.ModelChoiceField(label=gettext_lazy("Collection"), queryset=Collection.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        people = User.objects.filter(is_active=True).order_by("username")
        field_of(self, "person", forms.ModelChoiceField).queryset = people
        collection, rows = field_of(self, "collection", forms.ModelChoiceField), Collection.objects.live().by_name()
        collection.queryset = rows
        collection.choices = [("", "---------"), *((row.pk, row.label) for row in rows)]


@needs(ADMINISTER, everywhere=True, methods="GET HEAD POST")
def leak_probe(request: PageRequest) -> HttpResponse:
    form, status = ProbeForm(request.POST or None, initial=request.GET.dict()), 200
    report: ProbeReport | None = None
    if request.method == "POST":
        status = 422
        if form.is_valid():
            report = probe(form.cleaned_data["person"], [form.cleaned_data["collection"]], rounds=ROUNDS)
            status = 200
    return render_page(request, "evaluation/leak_probe.html", {"form": form, "report": report}, status=status)


FOUND_PER_GROUP = 6


@dataclass(frozen=True, slots=True)
class Destination:
    href: str
    symbol: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Command:
    """What is done at once: a form with one button. kind: "theme" is done in the browser, "keys" opens their list."""

    href: str
    symbol: str
    label: str
    kind: str = ""
    field: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    destinations: list[Destination]
    commands: list[Command] = field(default_factory=list)


def find_destinations(words: str, reader: Reader, titles: Mapping[str, str]) -> list[Group]:
    """Groups that are not empty. Without words: the pages and the first collections.

    titles: display names of collections, by name.
    """
    groups = [Group(gettext("Pages"), _pages(words, reader)), Group(gettext("Collections"), _collections(words))]
    done = Group(gettext("Do"), _done_with(words), _commands(words))
    if words:
        groups.append(done)  # before the question: who types "dark" wants the theme
        groups.append(Group(gettext("Ask"), _questions(words)))
        groups.append(Group(gettext("Playgrounds"), _playgrounds(words)))
        groups += [Group(gettext("Documents"), _documents(words)), Group(gettext("Query runs"), _runs(words, titles))]
        groups += [
            Group(gettext("Test sets"), _golden_sets(words, titles)),
            Group(gettext("Evaluation runs"), _evaluation_runs(words, titles)),
        ]
    else:
        groups.append(done)
    return [group for group in groups if group.destinations or group.commands]


def _questions(words: str) -> list[Destination]:
    """The words as a question, and as a search of the documents of the first collections where one may ask."""
    offered = askable(list(Collection.objects.live().by_name()))
    if not offered:
        return []
    asked = Destination(reverse("retrieval:chat", query={"q": words}), "ask", gettext("Ask “%(q)s”") % {"q": words})
    places = [
        Destination(
            reverse("collections:detail", args=[row.name], query={"q": words}), "search",
            gettext("Search “%(q)s” in %(name)s") % {"q": words, "name": row.label},
        )
        for row in offered[:2]
    ]  # fmt: skip
    return [asked, *places]


def _commands(words: str) -> list[Command]:
    """Theme, language, keys, log out, by their own words and some others."""
    theme, language = reverse("collections:theme"), reverse("set_language")
    known = [
        (Command("", "info", gettext("Show the keys"), "keys"), "help shortcuts keyboard"),
        (Command(theme, "system", gettext("System theme"), "theme", "theme", "system"), "appearance theme"),
        (Command(theme, "light", gettext("Light theme"), "theme", "theme", "light"), "appearance theme bright"),
        (Command(theme, "dark", gettext("Dark theme"), "theme", "theme", "dark"), "appearance theme night"),
        *(
            (Command(language, "language", gettext(name), "", "language", code), f"language {name}")
            for code, name in settings.LANGUAGES
        ),
        (Command(reverse("logout"), "leave", gettext("Log out")), "log out sign out leave"),
    ]
    requested = words.lower()
    return [command for command, others in known if requested in f"{command.label} {others}".lower()]


@dataclass(frozen=True, slots=True)
class Verb:
    """What can be done with a collection. words: typed before its name, which is in the address or in its query."""

    view: str
    symbol: str
    label: str
    permission: Permission
    words: tuple[str, ...]
    query: bool = False

    def address_of(self, collection: Collection) -> str:
        if self.query:
            return reverse(self.view, query={"collection": collection.name})
        return address_named(self.view, collection.name)


WRITE, ASK, READ = Permission.WRITE, Permission.ASK, Permission.READ
VERBS = (
    Verb("collections:upload", "upload", gettext_noop("Upload to %(name)s"), WRITE, ("upload", "add documents")),
    Verb("retrieval:chat", "ask", gettext_noop("Ask %(name)s"), ASK, ("ask", "question"), query=True),
    Verb("collections:upload?view=text", "edit", gettext_noop("Write a text for %(name)s"), WRITE, ("write", "paste")),
    Verb("collections:sources", "refresh", gettext_noop("Sources of %(name)s"), WRITE, ("sources", "sync")),
    Verb("collections:uploads", "clock", gettext_noop("Uploads of %(name)s"), READ, ("uploads", "jobs")),
    Verb("collections:detail?view=trash", "trash", gettext_noop("Trash of %(name)s"), WRITE, ("trash", "restore")),
    Verb("evaluation:health?view=gaps", "evaluation", gettext_noop("Content gaps of %(name)s"), READ, ("gaps",)),
    Verb("collections:settings", "admin", gettext_noop("Settings of %(name)s"), WRITE, ("settings",)),
)


def _done_with(words: str) -> list[Destination]:
    """What the reader may do with the collections whose names hold what is typed behind a verb or its beginning."""
    found: list[Destination] = []
    for verb in VERBS:
        name = _behind(words.lower(), verb.words)
        for row in [] if name is None else _named(name):
            if current_access().may(verb.permission, row.pk):
                label = gettext(verb.label) % {"name": row.label}
                found.append(Destination(verb.address_of(row), verb.symbol, label))
    return found


def _behind(requested: str, verbs: tuple[str, ...]) -> str | None:
    """What is typed behind one of the verbs; "" for its beginning of two letters or more; None for something else."""
    for verb in verbs:
        if len(requested) > 1 and verb.startswith(requested):
            return ""
        if requested == verb or requested.startswith(f"{verb} "):
            return requested.removeprefix(verb).strip().removeprefix("to ").removeprefix("of ").strip()
    return None


# what is made anew and has no page in the list of sections
NEW = (
    Page("retrieval:chat-assistants?view=new", gettext_noop("New assistant"), "plus", somewhere(WRITE), "create"),
    Page("collections:keys?view=new", gettext_noop("Create API key"), "plus", words="new secret token"),
    Page("collections:models?view=new", gettext_noop("Add model"), "plus", words="new endpoint provider connect"),
    Page("collections:people?view=new", gettext_noop("Add person"), "plus", administers, "new user invite"),
    Page("evaluation:experiments?view=new", gettext_noop("New experiment"), "plus", evaluates, "tune grid sweep"),
)


def _pages(words: str, reader: Reader) -> list[Destination]:
    requested = words.lower()
    offered = [page for page in (*all_pages(), *(NEW if words else ())) if page.offer(reader)]
    named = ((page, f"{page.title} {page.label} {page.words}".lower()) for page in offered)
    return [Destination(page.href, page.symbol, page.title) for page, names in named if requested in names]


def _named(words: str) -> list[Collection]:
    # the name is collated "C", whose upper() knows ASCII only
    named = Collection.objects.live().by_name().alias(folded_name=Collate("name", "default"))
    return list(named.filter(Q(folded_name__icontains=words) | Q(title__icontains=words))[:FOUND_PER_GROUP])


def _collections(words: str) -> list[Destination]:
    return [
        Destination(reverse("collections:detail", args=[row.name]), "collections", row.label) for row in _named(words)
    ]


def _playgrounds(words: str) -> list[Destination]:
    """Of the collections that are found; of the first ones for the word itself."""
    names_the_page = len(words) > 2 and "playground".startswith(words.lower())
    return [
        Destination(
            reverse("retrieval:playground", args=[row.name]), "evaluation", row.label, gettext("why this ranking")
        )
        for row in _named("" if names_the_page else words)
    ]


def _documents(words: str) -> list[Destination]:
    live = Document.objects.listed().filter(collection__deleted_at__isnull=True).select_related("collection")
    rows = live.matching(words).newest()[:FOUND_PER_GROUP]
    return [Destination(_address(row), "file", row.name, row.collection.label) for row in rows]


def _address(document: Document) -> str:
    return reverse("collections:document", args=[document.collection.name, document.doc_id])


def _runs(words: str, titles: Mapping[str, str]) -> list[Destination]:
    rows = QueryRun.objects.filtered(RunFilter(text=words)).for_lists().filter(collection_name__in=titles)
    return [
        Destination(row.get_absolute_url(), "runs", row.query[:120], titles[row.collection_name])
        for row in rows[:FOUND_PER_GROUP]
    ]


def _golden_sets(words: str, titles: Mapping[str, str]) -> list[Destination]:
    """By name, each to its dashboard."""
    rows = GoldenSet.objects.filter(name__icontains=words, collection_name__in=titles)[:FOUND_PER_GROUP]
    index = reverse("evaluation:index")
    return [
        Destination(f"{index}?{urlencode({'set': row.name})}", "evaluation", row.name, titles[row.collection_name])
        for row in rows
    ]


def _evaluation_runs(words: str, titles: Mapping[str, str]) -> list[Destination]:
    """By their own name or that of their set, newest first."""
    rows = find_runs(words).filter(collection_name__in=titles)[:FOUND_PER_GROUP]
    return [Destination(row.get_absolute_url(), "evaluation", str(row), row.set_name) for row in rows]


def _page_below(request: PageRequest) -> str:
    """The address of the page that the palette lies over, for the forms in it; "/" where it is a page of its own."""
    return (request.htmx.current_url_abs_path if request.htmx else "") or "/"


@needs(None, methods="GET")
def palette(request: PageRequest) -> HttpResponse:
    """Where one can go: pages, collections, documents and runs whose names hold the words."""
    words = request.GET.get("q", "").replace("\x00", "").strip()
    groups = find_destinations(words, request.user, collection_titles(request))
    context = {"q": words, "groups": groups, "next": _page_below(request)}
    parts = {"palette-results": "evaluation/parts/palette.html"}
    return render_page(request, "evaluation/palette.html", context, parts=parts)
