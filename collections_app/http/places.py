"""The five places of the product and the pages in them: the one list that navigation, tabs, settings and palette read.

A page is offered to those who may open it; `tests/access/test_places.py` holds the list against the rules of pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from django.contrib.auth.models import AnonymousUser, User
from django.urls import get_script_prefix, reverse
from django.utils.translation import gettext, gettext_noop

from collections_app.access_context import current_access
from collections_app.domain.permissions import Permission

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


asks, reads = somewhere(Permission.ASK), somewhere(Permission.READ)
evaluates, administers = somewhere(Permission.EVALUATE), everywhere(Permission.ADMINISTER)


@cache
def _address(view: str, prefix: str) -> str:
    """That of a view below the prefix, which a proxy may set. Every page asks for all of them, several times."""
    return reverse(view)


@dataclass(frozen=True, slots=True)
class Page:
    """One page that needs no argument.

    view: the name of its address. symbol: its icon. words: others by which the palette finds it. starts: beginnings of
    addresses that belong to it, beside its own. group, about: its heading and its line on the settings page.
    is_tab: whether it stands among the tabs of its place.
    """

    view: str
    label: str
    symbol: str
    offer: Offer = anybody
    words: str = ""
    starts: tuple[str, ...] = ()
    group: str = ""
    about: str = ""
    is_tab: bool = True

    @property
    def href(self) -> str:
        return _address(self.view, get_script_prefix())

    @property
    def title(self) -> str:
        return gettext(self.label)

    @property
    def about_text(self) -> str:
        return gettext(self.about)


@dataclass(frozen=True, slots=True)
class Place:
    """One of the five. key: the letter after `g` that leads there. It opens with the first page that is offered."""

    label: str
    symbol: str
    key: str
    pages: tuple[Page, ...]

    @property
    def title(self) -> str:
        return gettext(self.label)

    def offered(self, reader: Reader) -> list[Page]:
        return [page for page in self.pages if page.offer(reader)]


HOME = Page("evaluation:home", gettext_noop("Home"), "home", words="start overview")

PLACES = (
    Place(
        gettext_noop("Chat"),
        "ask",
        "c",
        (
            Page("retrieval:chat", gettext_noop("Chat"), "ask", asks, "ask question search answer thread"),
            Page(
                "retrieval:chat-assistants",
                gettext_noop("Assistants"),
                "person",
                asks,
                "model prompt greeting starter questions widget public",
                is_tab=False,
            ),
        ),
    ),
    Place(
        gettext_noop("Knowledge"),
        "collections",
        "k",
        (
            Page("collections:list", gettext_noop("Collections"), "collections", words="documents knowledge"),
            Page("collections:create", gettext_noop("New collection"), "plus", makes_collections, "make create"),
            Page("collections:import", gettext_noop("Import a collection"), "upload", makes_collections, "file"),
        ),
    ),
    Place(
        gettext_noop("Quality"),
        "evaluation",
        "q",
        (
            Page(
                "evaluation:index",
                gettext_noop("Dashboard"),
                "evaluation",
                reads,
                "evaluation scores trend metrics quality",
            ),
            Page("evaluation:evaluation-runs", gettext_noop("Evaluation runs"), "evaluation", reads, "scores history"),
            Page(
                "evaluation:golden-sets", gettext_noop("Test sets"), "evaluation", reads,
                "golden questions expected dataset",
            ),
            Page("evaluation:compare", gettext_noop("Compare"), "evaluation", reads, "regressed improved difference"),
            Page(
                "evaluation:experiments", gettext_noop("Experiments"), "evaluation", reads,
                "sweep grid of settings tune compare embedding models bake-off",
            ),
            Page(
                "evaluation:board", gettext_noop("Failure analysis"), "evaluation", reads,
                "failure modes failed questions fix",
            ),
            Page(
                "evaluation:review", gettext_noop("Human review"), "person", reads, "human people judge agreement kappa"
            ),
            Page("evaluation:live", gettext_noop("Online evaluation"), "evaluation", reads, "sampling scored answers"),
            Page(
                "evaluation:new-evaluation-run", gettext_noop("New evaluation run"), "plus", evaluates,
                "start evaluate judge", is_tab=False,
            ),
            Page(
                "evaluation:new-golden-set", gettext_noop("New test set"), "plus", evaluates, "create dataset",
                is_tab=False,
            ),
        ),
    ),
    Place(
        gettext_noop("Monitor"),
        "operations",
        "m",
        (
            Page(
                "evaluation:traces", gettext_noop("Overview"), "operations", reads, "latency errors cost monitor"
            ),
            Page("retrieval:runs", gettext_noop("Query runs"), "runs", reads, "queries history log"),
            Page("evaluation:conversations", gettext_noop("Conversations"), "ask", reads, "sessions threads feedback"),
            Page("evaluation:trace-list", gettext_noop("Traces"), "traces", reads, "telemetry", starts=("/traces/",)),
            Page("evaluation:spans", gettext_noop("Spans"), "traces", reads, "telemetry attributes"),
            Page("evaluation:alerts", gettext_noop("Alerts"), "alert", administers,
                 "alarms rules thresholds webhooks notifications"),
            Page("evaluation:operations", gettext_noop("Operations"), "operations", administers,
                 "workers queue jobs storage"),
        ),
    ),
    Place(
        gettext_noop("Settings"),
        "admin",
        "s",
        (
            Page("collections:server-settings", gettext_noop("Settings"), "admin", words="preferences configuration"),
            Page(
                "collections:models", gettext_noop("Models"), "models",
                words="embedding chat rerank judge endpoint provider key ollama openai",
                group=gettext_noop("Models"),
                about=gettext_noop("Connect language models, embedding models and rerankers, and test them."),
            ),
            Page(
                "evaluation:prices", gettext_noop("Model pricing"), "admin", words="cost spent dollars tokens",
                group=gettext_noop("Models"), about=gettext_noop("What tokens of each model cost."),
            ),
            Page(
                "collections:people", gettext_noop("People and groups"), "person", administers,
                "users roles sharing permissions invite", group=gettext_noop("Access"),
                about=gettext_noop("Who may log in, and which roles they have."),
            ),
            Page(
                "collections:keys", gettext_noop("API keys"), "key", words="bearer secret token curl",
                group=gettext_noop("Access"), about=gettext_noop("Keys for programs: scopes, limits, last use."),
            ),
            Page(
                "collections:connections",
                gettext_noop("Connections"),
                "traces",
                words="mcp openai base url otlp snippets curl connect clients",
                group=gettext_noop("Access"),
                about=gettext_noop("MCP, OpenAI base URL and OTLP, ready to paste."),
            ),
            Page(
                "collections:audit", gettext_noop("Audit log"), "runs", administers, "who did what events history",
                group=gettext_noop("Compliance"), about=gettext_noop("Who did what, when and from where."),
            ),
            Page(
                "evaluation:evidence", gettext_noop("Field coverage"), "print", administers,
                "audit evidence eu ai act nist owasp atlas cosai report", group=gettext_noop("Compliance"),
                about=gettext_noop("Which span fields that frameworks name were recorded."),
            ),
            Page(
                "evaluation:status", gettext_noop("Conformance"), "check",
                words="status specification rules versions span conventions", group=gettext_noop("Compliance"),
                about=gettext_noop("The rules of the specification, checked against this database."),
            ),
            Page(
                "evaluation:leak-probe", gettext_noop("Leak probe"), "lock", administers, "security row access test",
                group=gettext_noop("Compliance"),
                about=gettext_noop("Searches as different people for texts that they may not see."),
            ),
            Page(
                "evaluation:retention", gettext_noop("Retention"), "clock", administers,
                "days kept cleanup privacy gdpr", group=gettext_noop("Server"),
                about=gettext_noop("How long each kind of data is kept, and what was deleted."),
            ),
            Page(
                "evaluation:upkeep", gettext_noop("Maintenance"), "operations", administers,
                "retention cleanup checks repairs", group=gettext_noop("Server"),
                about=gettext_noop("Consistency checks, repairs, and what retention removed."),
            ),
            Page(
                "collections:help",
                gettext_noop("Help"),
                "info",
                words="documentation docs manual how to",
                group=gettext_noop("Server"),
                about=gettext_noop("The documentation of this version."),
            ),
            Page(
                "api:openapi-view", gettext_noop("API reference"), "runs", words="docs openapi rest json",
                group=gettext_noop("Server"), about=gettext_noop("All operations of the REST API."),
            ),
            Page(
                "admin:index", gettext_noop("Django admin"), "admin", is_staff, "users tables records",
                group=gettext_noop("Server"), about=gettext_noop("All records in tables, for emergencies."),
            ),
            Page(
                "collections:appearance",
                gettext_noop("Appearance"),
                "light",
                words="theme language time zone",
                group=gettext_noop("Account"),
                about=gettext_noop("Theme, language and time zone."),
            ),
            Page(
                "password_change", gettext_noop("Change password"), "edit", has_password, "account",
                group=gettext_noop("Account"), about=gettext_noop("At least 12 characters."),
            ),
            Page(
                "mfa_index", gettext_noop("Second factor"), "key", words="account passkey totp authenticator",
                starts=("/accounts/",), group=gettext_noop("Account"),
                about=gettext_noop("Authenticator app, passkeys and recovery codes."),
            ),
            Page(
                "sessions", gettext_noop("Sessions"), "person", words="account log out devices",
                group=gettext_noop("Account"), about=gettext_noop("Where you are logged in, and how to end it."),
            ),
        ),
    ),
)  # fmt: skip

SETTINGS = PLACES[-1]


def all_pages() -> Iterator[Page]:
    """Home first, then place by place."""
    yield HOME
    for place in PLACES:
        yield from place.pages


def find_place(path: str) -> tuple[Place, Page] | None:
    """Where an address belongs: the page with the longest beginning of it, the later one of two; None for Home."""
    best: tuple[int, Place, Page] | None = None
    for place in PLACES:
        for page in place.pages:
            if page.href == path:
                return place, page
            for start in (page.href, *page.starts):
                if path.startswith(start) and (best is None or len(start) >= best[0]):
                    best = len(start), place, page
    return best and best[1:]
