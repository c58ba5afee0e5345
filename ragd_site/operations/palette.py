"""The command palette: where one can go, and what can be done from every page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Collate
from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.access.rules import needs
from collections_app.http.navigation import Page, Reader, address_named, administers, all_pages, evaluates, somewhere
from collections_app.http.page_requests import PageRequest, collection_titles, render_page
from collections_app.models import Collection, Document
from evaluation_app.models import GoldenSet
from evaluation_app.runs.run_pages.runs_page import find_runs
from retrieval_app.chat.assistants import askable
from retrieval_app.models import QueryRun
from retrieval_app.runs.models import RunFilter

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
