"""The kinds of connectors: those of ragd, and those that installed packages offer as entry points."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points

from collections_app.sources.kinds.feed import FeedConnector
from collections_app.sources.kinds.files import FolderConnector, S3Connector
from collections_app.sources.kinds.git import GitConnector
from collections_app.sources.kinds.imap import ImapConnector
from collections_app.sources.kinds.protocol import BaseConnector
from collections_app.sources.kinds.webdav import WebDavConnector
from collections_app.sources.kinds.website import WebsiteConnector

log = logging.getLogger(__name__)

GROUP = "ragd.connectors"
KIND_MAX_CHARS = 32
BUILT_IN: tuple[type[BaseConnector], ...] = (
    WebsiteConnector, FeedConnector, GitConnector, WebDavConnector, S3Connector, ImapConnector, FolderConnector,
)  # fmt: skip


@cache
def connector_kinds() -> dict[str, type[BaseConnector]]:
    """Kind -> class, ragd's own first, then those of packages by name. One that cannot be loaded is logged and left
    out; a package cannot take the place of a kind that is there."""
    kinds = {each.kind: each for each in BUILT_IN}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except Exception:  # whatever a foreign package raises
            log.exception("the connector %s of %s cannot be loaded and is left out", entry.name, entry.value)
            continue
        if isinstance(loaded, type) and issubclass(loaded, BaseConnector) and 0 < len(loaded.kind) <= KIND_MAX_CHARS:
            kinds.setdefault(loaded.kind, loaded)
        else:
            log.error("%s is no connector: expected a subclass of BaseConnector with a kind", entry.value)
    return kinds
