"""An RSS or Atom feed. What has left the feed stays: feeds name only the newest entries."""

from __future__ import annotations

import hashlib
import html
import io
from calendar import timegm
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import feedparser
from django.utils.translation import gettext_lazy

from collections_app.sources.kinds.protocol import BaseSource, Field, File, Item, Reach, SourceError, check_url
from ragd.errors import InvalidInput
from ragd.readers.fetching import doc_id_of, read_address

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
