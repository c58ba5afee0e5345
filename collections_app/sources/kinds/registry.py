"""The kinds of sources: those of ragd, and those that installed packages offer as entry points."""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points

from collections_app.sources.kinds.files import FolderSource, GitSource, S3Source, WebDavSource
from collections_app.sources.kinds.imap import ImapSource
from collections_app.sources.kinds.protocol import BaseSource
from collections_app.sources.kinds.website import FeedSource, WebsiteSource

log = logging.getLogger(__name__)

GROUP = "ragd.sources"
KIND_MAX_CHARS = 32
BUILT_IN: tuple[type[BaseSource], ...] = (
    WebsiteSource, FeedSource, GitSource, WebDavSource, S3Source, ImapSource, FolderSource,
)  # fmt: skip


@cache
def source_kinds() -> dict[str, type[BaseSource]]:
    """Kind -> class, ragd's own first, then those of packages by name. One that cannot be loaded is logged and left
    out; a package cannot take the place of a kind that is there."""
    kinds = {each.kind: each for each in BUILT_IN}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            loaded = entry.load()
        except Exception:  # whatever a foreign package raises
            log.exception("the source %s of %s cannot be loaded and is left out", entry.name, entry.value)
            continue
        if isinstance(loaded, type) and issubclass(loaded, BaseSource) and 0 < len(loaded.kind) <= KIND_MAX_CHARS:
            kinds.setdefault(loaded.kind, loaded)
        else:
            log.error("%s is no source: expected a subclass of BaseSource with a kind", entry.value)
    return kinds
