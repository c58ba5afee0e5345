"""The four sections of the product and the pages in them: the one list that rail, menus, tabs and palette read.

A page is offered to those who may open it; `tests/access/test_navigation.py` holds the list against the rules of pages.

The tabs of a collection and what stands below each: the one list that its pages read.

A page says by `tab` in its context which entry it is. A tab leads to the first of its entries that is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from django.contrib.auth.models import AnonymousUser, User
from django.urls import get_script_prefix, reverse
from django.utils.translation import gettext, gettext_noop

from collections_app.access.context import current_access
from collections_app.access.permissions import Permission
from collections_app.models import Collection

Reader = User | AnonymousUser
Offer = Callable[[Reader], bool]


def anybody(reader: Reader) -> bool:
    return True


def somewhere(permission: Permission) -> Offer:
    """For who has the permission in some collection."""
    return lambda reader: current_access().may_anywhere(permission)


def everywhere(permission: Permission) -> Offer:
    """For who has the permission in all collections."""
    return lambda reader: current_access().may(permission)


def makes_collections(reader: Reader) -> bool:
    return current_access().may_make_collections


def has_password(reader: Reader) -> bool:
    return isinstance(reader, User) and reader.has_usable_password()


def is_staff(reader: Reader) -> bool:
    return reader.is_staff


def works(reader: Reader) -> bool:
    """For who keeps or measures some collection, not for who reads and asks alone."""
    access = current_access()
    return access.may_anywhere(Permission.WRITE) or access.may_anywhere(Permission.EVALUATE)


def keeps_the_server(reader: Reader) -> bool:
    return reader.is_staff or current_access().may(Permission.ADMINISTER)


asks, reads = somewhere(Permission.ASK), somewhere(Permission.READ)
evaluates, administers = somewhere(Permission.EVALUATE), everywhere(Permission.ADMINISTER)


@cache
def _address(view: str, prefix: str) -> str:
    """That of a view below the prefix, which a proxy may set. Every page asks for all of them, several times."""
    return address_named(view)


def address_named(view: str, *arguments: str) -> str:
    """Of a view of an address, such as operations:operations?view=cluster."""
    name, mark, query = view.partition("?")
    return reverse(name, args=arguments) + mark + query


@dataclass(frozen=True, slots=True)
class Page:
    """One page that needs no argument.

    view: the name of its address. symbol: its icon. words: others by which the palette finds it. starts: beginnings of
    addresses that belong to it, beside its own. group: its heading in the menu there. is_tab: whether it stands
    among the tabs or in the menu of its section.
    """

    view: str
    label: str
    symbol: str
    offer: Offer = anybody
    words: str = ""
    starts: tuple[str, ...] = ()
    group: str = ""
    is_tab: bool = True

    @property
    def href(self) -> str:
        return _address(self.view, get_script_prefix())

    @property
    def title(self) -> str:
        return gettext(self.label)


@dataclass(frozen=True, slots=True)
class Section:
    """One of the four, or the reader's account. key: the letter after `g` that leads there.

    It opens with the first page that is offered. rail: for whom it stands in the rail, if anything in it is offered.
    has_menu: whether its pages stand in a menu at the left rather than in tabs.
    """

    label: str
    symbol: str
    key: str
    pages: tuple[Page, ...]
    rail: Offer = anybody
    has_menu: bool = False

    @property
    def title(self) -> str:
        return gettext(self.label)

    def offered(self, reader: Reader) -> list[Page]:
        return [page for page in self.pages if page.offer(reader)]


HOME = Page("operations:home", gettext_noop("Home"), "home", words="start overview")

SECTIONS = (
    Section(
        gettext_noop("Chat"), "ask", "c", (
            Page("retrieval:chat", gettext_noop("Chat"), "ask", asks, "ask question search answer thread"),
            Page(
                "retrieval:chat-assistants", gettext_noop("Assistants"), "person", asks,
                "model prompt greeting starter questions widget public", is_tab=False,
            ),
        ),
    ),
    Section(
        gettext_noop("Library"), "collections", "l", (
            Page("collections:list", gettext_noop("Collections"), "collections", words="documents knowledge library"),
            Page("collections:list?view=new", gettext_noop("New collection"), "plus", makes_collections, "make create"),
            Page("collections:list?view=import", gettext_noop("Import a collection"), "upload", makes_collections,
                 "file"),
        ),
    ),
    Section(
        gettext_noop("Evaluate"), "evaluation", "e", (
            Page("evaluation:index", gettext_noop("Dashboard"), "evaluation", reads, "scores trend metrics quality"),
            Page("evaluation:evaluation-runs", gettext_noop("Evaluation runs"), "evaluation", reads, "scores history"),
            Page("evaluation:golden-sets", gettext_noop("Test sets"), "evaluation", reads, "golden questions dataset"),
            Page("evaluation:compare", gettext_noop("Compare"), "evaluation", reads, "regressed improved difference"),
            Page(
                "evaluation:experiments", gettext_noop("Experiments"), "evaluation", reads,
                "sweep grid of settings tune compare embedding models bake-off",
            ),
            Page("evaluation:board", gettext_noop("Failure analysis"), "evaluation", reads, "failure modes failed fix"),
            Page("evaluation:review", gettext_noop("Human review"), "person", reads, "people judge agreement kappa"),
            Page("evaluation:live", gettext_noop("Online evaluation"), "evaluation", reads, "sampling scored answers"),
            Page(
                "evaluation:activity", gettext_noop("Activity"), "runs", reads,
                "query runs conversations traces spans history log telemetry", starts=("/runs/", "/traces/"),
            ),
            Page(
                "evaluation:evaluation-runs?view=new", gettext_noop("New evaluation run"), "plus", evaluates,
                "start evaluate judge", is_tab=False,
            ),
        ),
        rail=works,
    ),
    Section(
        gettext_noop("Admin"), "admin", "a", (
            Page(
                "evaluation:traces", gettext_noop("Overview"), "operations", reads, "latency errors cost monitor",
                group=gettext_noop("Monitor"),
            ),
            Page(
                "evaluation:alerts", gettext_noop("Alerts"), "alert", administers,
                "alarms rules thresholds webhooks notifications", group=gettext_noop("Monitor"),
            ),
            Page(
                "operations:operations", gettext_noop("Operations"), "operations", administers,
                "workers queue jobs storage maintenance checks", group=gettext_noop("Monitor"),
            ),
            Page(
                "collections:models", gettext_noop("Models"), "models",
                words="embedding chat rerank judge endpoint openai prices cost", group=gettext_noop("Settings"),
            ),
            Page(
                "operations:server-settings", gettext_noop("Server settings"), "operations", administers,
                "limits sign-on oidc sso mail smtp ocr folders backup environment variables",
                group=gettext_noop("Settings"),
            ),
            Page(
                "collections:people", gettext_noop("People and groups"), "person", administers,
                "users roles sharing permissions invite", group=gettext_noop("Settings"),
            ),
            Page(
                "operations:server-settings?view=retention", gettext_noop("Retention"), "clock", administers,
                "days kept cleanup privacy gdpr", group=gettext_noop("Settings"),
            ),
            Page(
                "collections:audit", gettext_noop("Audit log"), "runs", administers, "who did what events history",
                group=gettext_noop("Settings"),
            ),
            Page(
                "operations:operations?view=field-coverage", gettext_noop("Field coverage"), "print", administers,
                "audit evidence eu ai act nist owasp atlas cosai report", group=gettext_noop("Advanced"),
            ),
            Page(
                "operations:operations?view=conformance", gettext_noop("Conformance"), "check",
                words="status specification rules versions span conventions", group=gettext_noop("Advanced"),
            ),
            Page(
                "operations:operations?view=leak-probe", gettext_noop("Leak probe"), "lock", administers,
                "security row access test", group=gettext_noop("Advanced"),
            ),
            Page(
                "operations:operations?view=cluster", gettext_noop("Cluster"), "operations", administers,
                "nodes machines shards", group=gettext_noop("Advanced"),
            ),
            Page(
                "admin:index", gettext_noop("Django admin"), "admin", is_staff, "users tables records",
                group=gettext_noop("Advanced"),
            ),
        ),
        rail=keeps_the_server,
        has_menu=True,
    ),
)  # fmt: skip

# behind the reader's own menu, at the top of every page
ACCOUNT = Section(
    gettext_noop("Account"), "person", "s", (
        Page("collections:appearance", gettext_noop("Appearance"), "light", words="theme language time zone settings"),
        Page("collections:keys", gettext_noop("API keys"), "key", words="bearer secret token curl"),
        Page("collections:appearance?view=connections", gettext_noop("Connections"), "traces",
             words="mcp openai otlp snippets curl"),
        Page("password_change", gettext_noop("Change password"), "edit", has_password, "account"),
        Page("mfa_index", gettext_noop("Second factor"), "key", words="passkey authenticator", starts=("/accounts/",)),
        Page("sessions", gettext_noop("Sessions"), "person", words="account log out devices"),
        Page("collections:help", gettext_noop("Help"), "info", words="documentation docs manual how to"),
        Page("api:openapi-view", gettext_noop("API reference"), "runs", words="docs openapi rest json"),
    ),
    has_menu=True,
)  # fmt: skip


def all_pages() -> Iterator[Page]:
    """Home first, then section by section."""
    yield HOME
    for section in (*SECTIONS, ACCOUNT):
        yield from section.pages


def find_section(path: str) -> tuple[Section, Page] | None:
    """Where an address belongs: the page with the longest beginning of it, first what names it; None for Home."""
    return _find_section(path, get_script_prefix())


@lru_cache(maxsize=1024)
def _find_section(path: str, _script_prefix: str) -> tuple[Section, Page] | None:
    best: tuple[tuple[int, bool], Section, Page] | None = None
    for section in (*SECTIONS, ACCOUNT):
        for page in section.pages:
            if page.href == path:
                return section, page
            for start in (page.href, *page.starts):
                weight = (len(start), start != page.href)
                if path.startswith(start) and (best is None or weight >= best[0]):
                    best = weight, section, page
    return best and best[1:]


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
    """for_work: whether it is for those alone who keep or measure the collection."""

    label: str
    entries: tuple[Entry, ...]
    for_work: bool = False


TABS = (
    Tab(
        gettext_noop("Documents"),
        (
            Entry("documents", "collections:detail", gettext_noop("Documents")),
            Entry("sources", "collections:sources", gettext_noop("Sources"), Permission.WRITE),
            Entry("uploads", "collections:uploads", gettext_noop("Uploads")),
            Entry("trash", "collections:detail?view=trash", gettext_noop("Trash"), Permission.WRITE),
        ),
    ),
    Tab(
        gettext_noop("Index"),
        (Entry("index_versions", "collections:index_versions", gettext_noop("Index")),),
        for_work=True,
    ),
    Tab(
        gettext_noop("Playground"),
        (Entry("playground", "retrieval:playground", gettext_noop("Playground"), Permission.ASK),),
    ),
    Tab(
        gettext_noop("Content health"),
        (
            Entry("outliers", "evaluation:health", gettext_noop("Chunk issues")),
            Entry("findings", "evaluation:health?view=findings", gettext_noop("Security scan")),
            Entry("gaps", "evaluation:health?view=gaps", gettext_noop("Content gaps")),
        ),
        for_work=True,
    ),
    Tab(
        gettext_noop("Settings"),
        (
            Entry("settings", "collections:settings", gettext_noop("Settings"), Permission.WRITE),
            Entry("sharing", "collections:settings?view=sharing", gettext_noop("Sharing"), Permission.ADMINISTER),
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
    is_at_work = access.may(Permission.WRITE, collection.pk) or access.may(Permission.EVALUATE, collection.pk)
    tabs: list[Link] = []
    below: list[Link] = []
    for tab in TABS:
        offered = [entry for entry in tab.entries if access.may(entry.needs, collection.pk)]
        is_here = here in (entry.key for entry in tab.entries)
        if not offered or (tab.for_work and not is_at_work and not is_here):
            continue
        first = _link(offered[0], collection, here)
        current = first.current or ("true" if is_here else "")
        tabs.append(Link(first.key, gettext(tab.label), first.href, current))
        if is_here and len(offered) > 1:
            below = [_link(entry, collection, here) for entry in offered]
    return tabs, below


def _link(entry: Entry, collection: Collection, here: str) -> Link:
    return Link(entry.key, entry.title, address_named(entry.view, collection.name), "page" if entry.key == here else "")
