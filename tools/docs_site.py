"""Hooks of the site that `make docs` builds: the navigation of docs/index.md, and no links to the source code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

INDEX = Path(__file__).parents[1] / "docs" / "index.md"
LINK = re.compile(r"\[([^\]]+)\]\((\w[\w-]*\.md)\)")
TO_SOURCE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_config(config: Any) -> Any:
    """Sections and pages in the order of the index; a page is named as its first link is."""
    sections = INDEX.read_text(encoding="utf-8").split("\n## ")
    listed: set[str] = set()
    config.nav = [{"Overview": "index.md"}]
    for section in sections[1:]:
        pages = {name: title for title, name in reversed(LINK.findall(section)) if name not in listed}
        listed.update(pages)
        config.nav.append({section.partition("\n")[0]: [{pages[name]: name} for name in reversed(pages)]})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    return TO_SOURCE.sub(r"\1", markdown)
