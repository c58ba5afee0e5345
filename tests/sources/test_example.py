"""The source of docs/sources.md, installed as a package would be."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from collections_app.models import Document
from collections_app.sources.kinds import registry
from tests.fakes.web_server import Page, WebServer
from tests.sources.syncing import changes, sync

pytestmark = pytest.mark.django_db

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "sources.md").read_text()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, and entry points that cannot be loaded or are no sources."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    (name, value) = re.findall(r'^(\S+) = "(acme_wiki:\w+)"$', DOCS, re.MULTILINE)[0]
    (tmp_path / "acme_wiki.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    values = [(name, value), ("gone", "no_such_module:Thing"), ("other", "json:loads")]
    offered = [EntryPoint(*each, registry.GROUP) for each in values]
    monkeypatch.setattr(registry, "entry_points", lambda group: offered if group == registry.GROUP else [])
    registry.source_kinds.cache_clear()
    yield
    registry.source_kinds.cache_clear()
    sys.modules.pop("acme_wiki", None)


def test_the_example_of_the_documentation_syncs(installed: None, connect: Any, web_server: WebServer) -> None:
    assert set(registry.source_kinds()) == {*(each.kind for each in registry.BUILT_IN), "acme-wiki"}

    def index(*pages: tuple[str, int]) -> Page:
        return Page(json.dumps([{"path": path, "revision": n, "title": f"On {path}"} for path, n in pages]).encode())

    web_server.pages |= {f"/wiki/{name}": Page(f"<p>All about {name}.</p>".encode()) for name in ("a", "b", "c")}
    web_server.pages["/wiki/index.json"] = index(("a", 1), ("b", 1))
    wiki = connect("acme-wiki", url=web_server.url("/wiki/"))
    assert changes(sync(wiki)) == {"added": ["a", "b"]}
    document = Document.objects.get(doc_id="a")
    assert (document.title, document.media_type) == ("On a", "text/html")
    web_server.pages["/wiki/index.json"] = index(("a", 2), ("c", 1))
    web_server.pages["/wiki/a"] = Page(b"<p>Anew.</p>")
    assert changes(sync(wiki)) == {"added": ["c"], "deleted": ["b"], "updated": ["a"]}
