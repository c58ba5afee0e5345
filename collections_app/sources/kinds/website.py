"""A website: the pages that its links or its sitemap lead to.

An RSS or Atom feed. What has left the feed stays: feeds name only the newest entries.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import io
import re
import time
from calendar import timegm
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin
from xml.etree import ElementTree

import feedparser
from django.utils.translation import gettext_lazy
from selectolax.lexbor import LexborHTMLParser

from collections_app.sources.kinds.protocol import (
    BaseSource,
    Field,
    File,
    Item,
    Reach,
    SourceError,
    check_url,
    read_xml,
)
from ragd.errors import InvalidInput
from ragd.readers.fetching import Address, FetchResult, doc_id_of, read_address
from ragd.readers.text.charsets import decode
from ragd.readers.text.html import is_too_deep

DEPTH_MAX = 20
PAGES_MAX = 10_000
SITEMAPS_MAX = 50
SITEMAP_MAX_BYTES = 50_000_000  # unpacked, as sitemaps.org has it
VISITS_PER_PAGE = 5  # addresses that are asked for, to one that is a page
HOST_WAIT_MAX_S = 60.0  # for a site that wants a moment; one that wants more is asked at the next sync
LOOK_EVERY_S = 0.2
GONE = ("not_found",)
PASSED_OVER = ("robots_refused", "address_refused", "bad_redirect", "empty_content")  # nothing that the site shows us
UNREAD = re.compile(
    r"\.(?:png|jpe?g|gif|webp|svg|ico|css|js|mjs|map|woff2?|ttf|eot|mp[34]|m4[av]|webm|avi|mov|ogg|wav|zip|t?gz|tar|"
    r"bz2|xz|7z|rar|exe|dmg|iso|apk|deb|rpm)$",
    re.IGNORECASE,
)
MARKUP = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|main|article|p|a|h1)\b", re.IGNORECASE)
NO_TEXT = "script, style, template, noscript"


@dataclass(frozen=True, slots=True)
class _Page:
    """A page as its links and its text tell. keeps: robots may index it."""

    links: tuple[Address, ...]
    text: str
    keeps: bool


class WebsiteSource(BaseSource):
    """Breadth first from the start page, in the order of the links; only pages of the same scheme, host and port."""

    kind = "website"
    title = gettext_lazy("Website")
    about = gettext_lazy("The pages of one site, found by its links or its sitemap. robots.txt is honoured.")
    fields = (
        Field("url", gettext_lazy("Start page"), required=True, help=gettext_lazy("https://example.org/docs/")),
        Field(
            "find",
            gettext_lazy("Find pages by"),
            "choice",
            default="links",
            choices=(
                ("links", gettext_lazy("Links")),
                ("sitemap", gettext_lazy("Sitemap")),
                ("both", gettext_lazy("Sitemap and links")),
            ),
        ),
        Field("depth", gettext_lazy("Depth"), "number", default=3, minimum=0, maximum=DEPTH_MAX,
              help=gettext_lazy("How many links away from the start page.")),
        Field("max_pages", gettext_lazy("Page limit"), "number", default=200, minimum=1, maximum=PAGES_MAX),
        Field("below", gettext_lazy("Only pages below the folder of the start page"), "switch", default=True),
        Field(
            "exclude",
            gettext_lazy("Leave out"),
            "lines",
            default=(),
            help=gettext_lazy("Beginnings of paths such as /archive/, one per line."),
        ),
        Field("sitemap", gettext_lazy("Sitemap"), help=gettext_lazy("Its URL. Empty: /sitemap.xml")),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        cleaned = {**settings, "url": check_url(settings, "url")}
        if cleaned.get("sitemap"):
            cleaned["sitemap"] = check_url(settings, "sitemap")
            if read_address(cleaned["sitemap"]).origin != read_address(cleaned["url"]).origin:
                raise InvalidInput("the sitemap must be on the same site as the start page", field="sitemap")
        if bad := [each for each in cleaned["exclude"] if not each.startswith("/")]:
            raise InvalidInput(f"a path that is left out must begin with /, not {bad[0][:100]!r}", field="exclude")
        return cleaned

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self.start = read_address(settings["url"])
        self._seen: set[str] = set()
        self._read: FetchResult | SourceError | None = None  # of the item that was listed last

    def list_items(self) -> Iterator[Item]:
        find, listed = self.settings["find"], 0
        waiting: list[tuple[Address, int, str]] = [] if find == "sitemap" else [(self.start, 0, "")]
        if find != "links":
            waiting += [(at, 0, modified) for at, modified in self._read_sitemaps()]
        follows = find != "sitemap"
        for at, depth, modified in waiting:  # it grows while it is read
            if str(at) in self._seen or not self._is_wanted(at):
                continue
            self._seen.add(str(at))
            if listed >= self.settings["max_pages"] or len(self._seen) > VISITS_PER_PAGE * self.settings["max_pages"]:
                self.is_complete = False
                return
            self.reach.pulse()
            if modified and not follows:
                self._read = None
                listed += 1
                yield Item(doc_id_of(at), f"lastmod {modified}", url=str(at))
                continue
            item, links = self._visit(at, is_start=at == self.start)
            if follows and depth < self.settings["depth"]:
                waiting += [(link, depth + 1, "") for link in links]
            if item is not None:
                listed += 1
                yield item

    def fetch(self, item: Item) -> File:
        read = self._read if self._read is not None else self._ask(item.url)
        if isinstance(read, SourceError):
            raise read
        assert read.content is not None  # nothing was known of it
        name = read.name if "." in read.name or not MARKUP.search(read.content[:4096]) else f"{read.name}.html"
        return File(name, read.content)

    def _visit(self, at: Address, *, is_start: bool) -> tuple[Item | None, tuple[Address, ...]]:
        """(the page as an item, None where it is none; its links)."""
        try:
            read = self._ask(str(at))
        except SourceError as error:
            if is_start:
                raise
            if error.kind in GONE or error.kind in PASSED_OVER:
                return None, ()
            self.is_complete = False  # its links are not known
            self._read = error
            return Item(doc_id_of(at), "", url=str(at)), ()
        assert read.content is not None
        final = read_address(read.final_address or str(at))
        if final != at and (str(final) in self._seen or not self._is_wanted(final)):
            return None, ()
        self._seen.add(str(final))
        self._read = read
        page = _read_page(read.content, final)
        content = page.text.encode() if page.text else read.content
        version = hashlib.sha256(content).hexdigest()
        item = Item(doc_id_of(final), version, url=str(final))
        return (item if page.keeps else None), page.links

    def _ask(self, url: str) -> FetchResult:
        """A page; one that another worker is asking for at the moment, or that wants a short rest, comes later."""
        patience_ends = time.monotonic() + HOST_WAIT_MAX_S
        while True:
            try:
                return self.reach.read_page(url)
            except SourceError as error:
                if error.postpone_s is None:
                    raise
                back_at = time.monotonic() + error.postpone_s
                if back_at > patience_ends:
                    raise
                while time.monotonic() < back_at:
                    self.reach.pulse()
                    time.sleep(LOOK_EVERY_S)

    def _is_wanted(self, at: Address) -> bool:
        if at.origin != self.start.origin:
            return False
        path = at.target.partition("?")[0]
        if UNREAD.search(path) or any(path.startswith(each) for each in self.settings["exclude"]):
            return False
        folder = self.start.target.partition("?")[0].rpartition("/")[0] + "/"
        return not self.settings["below"] or path.startswith(folder) or at == self.start

    def _read_sitemaps(self) -> Iterator[tuple[Address, str]]:
        """(page, when it was last modified, "" where that is not told). Raises SourceError when one cannot be read."""
        first = self.settings.get("sitemap") or f"{self.start.origin}/sitemap.xml"
        waiting, asked = [read_address(first)], 0
        for at in waiting:  # it grows while it is read
            if asked >= SITEMAPS_MAX:
                self.is_complete = False
                return
            asked += 1
            content = self._ask(str(at)).content or b""
            root = _parse_sitemap(content, str(at))
            for entry in root:
                location = (entry.findtext("{*}loc") or entry.findtext("loc") or "").strip()
                try:
                    found = read_address(urljoin(str(at), location))
                except InvalidInput:
                    continue
                if root.tag.endswith("sitemapindex"):
                    if found.origin == self.start.origin and found not in waiting:
                        waiting.append(found)
                else:
                    yield found, (entry.findtext("{*}lastmod") or entry.findtext("lastmod") or "").strip()[:40]


def _parse_sitemap(content: bytes, at: str) -> ElementTree.Element:
    try:
        if content.startswith(b"\x1f\x8b"):
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(SITEMAP_MAX_BYTES + 1)
        if len(content) > SITEMAP_MAX_BYTES:
            raise SourceError("too_large", f"the sitemap {at} has more than {SITEMAP_MAX_BYTES:,} bytes")
    except (OSError, EOFError) as error:
        raise SourceError("unexpected_answer", f"the sitemap {at} is damaged: {error}", retryable=True) from None
    return read_xml(content, f"the sitemap {at}")


def _read_page(content: bytes, at: Address) -> _Page:
    markup = decode(content).text if MARKUP.search(content[:65_536]) else ""
    if not markup or is_too_deep(markup):
        return _Page((), "", keeps=True)
    tree = LexborHTMLParser(markup)
    robots = tree.css_first('meta[name="robots" i]')
    directives = (robots.attributes.get("content") or "").lower() if robots is not None else ""
    is_closed = "none" in directives
    base = tree.css_first("base[href]")
    base_url = urljoin(str(at), (base.attributes.get("href") or "") if base is not None else "")
    links: dict[str, Address] = {}
    for node in () if is_closed or "nofollow" in directives else tree.css("a[href]"):
        if "nofollow" in (node.attributes.get("rel") or "").lower():
            continue
        try:
            found = read_address(urljoin(base_url, (node.attributes.get("href") or "").strip()))
        except (InvalidInput, ValueError):
            continue
        links.setdefault(str(found), found)
    title = tree.css_first("head > title")
    shown = " ".join(title.text().split()) if title is not None else ""
    for node in tree.css(NO_TEXT):
        node.decompose()
    text = tree.body.text(separator="\n") if tree.body is not None else ""
    return _Page(tuple(links.values()), f"{shown}\n{text}", keeps=not is_closed and "noindex" not in directives)


ENTRIES_MAX = 5000
DIGEST_CHARS = 16


class FeedSource(BaseSource):
    """Each entry is a document: what the feed says of it, or the page that it links to."""

    kind = "feed"
    title = gettext_lazy("RSS or Atom feed")
    about = gettext_lazy("The entries of a feed, or the pages that they link to. Entries that leave the feed stay.")
    is_complete = False
    fields = (
        Field("url", gettext_lazy("Feed URL"), required=True),
        Field("pages", gettext_lazy("Fetch the linked pages"), "switch", default=False),
    )

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        return {**settings, "url": check_url(settings, "url")}

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self._entry: Any = None  # that was listed last

    def list_items(self) -> Iterator[Item]:
        url = self.settings["url"]
        content = self.reach.read_page(url).content or b""
        feed = feedparser.parse(io.BytesIO(content), resolve_relative_uris=True, sanitize_html=True)
        if not feed.entries and (feed.bozo or not feed.version):
            raise SourceError("unexpected_answer", f"{url} is no RSS or Atom feed; check its URL")
        for entry in feed.entries[:ENTRIES_MAX]:
            self._entry = entry
            link = _link_of(entry, url)
            title = str(entry.get("title") or "")
            if not link and not entry.get("id"):
                continue
            moment = entry.get("updated_parsed") or entry.get("published_parsed")
            modified = datetime.fromtimestamp(timegm(moment), UTC) if moment else None
            body = _body_of(entry)
            version = hashlib.sha256(f"{title}\n{body}\n{modified}".encode()).hexdigest()
            name = doc_id_of(read_address(link)) if link else f"entry-{_digest(str(entry.id))}"
            yield Item(name, version, title=title, url=link, modified=modified)

    def fetch(self, item: Item) -> File:
        if self.settings["pages"] and item.url:
            read = self.reach.read_page(item.url)
            return File(read.name if "." in read.name else f"{read.name}.html", read.content or b"")
        title = html.escape(item.title)
        link = f'<p><a href="{html.escape(item.url)}">{html.escape(item.url)}</a></p>' if item.url else ""
        page = (
            f"<!doctype html><html><head><meta charset=utf-8><title>{title}</title></head>"
            f"<body><h1>{title}</h1>{_body_of(self._entry)}{link}</body></html>"
        )
        return File("entry.html", page.encode())


def _link_of(entry: Any, base: str) -> str:
    """The entry's address, "" for none that could be fetched."""
    try:
        return str(read_address(base).join(str(entry.get("link") or ""))) if entry.get("link") else ""
    except InvalidInput:
        return ""


def _body_of(entry: Any) -> str:
    """Its content as HTML, else its summary."""
    parts = [str(part.get("value") or "") for part in entry.get("content") or ()]
    return "\n".join(filter(None, parts)) or str(entry.get("summary") or "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]
