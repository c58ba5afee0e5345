from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.collections.conftest import committed, embeddings, notes
from tests.fakes.openai_server import openai_server
from tests.fakes.web_server import web_server
from tests.fetching.conftest import open_loopback

if TYPE_CHECKING:
    from collections_app.models import Source

__all__ = ["committed", "embeddings", "notes", "open_loopback", "openai_server", "web_server"]


@pytest.fixture
def share(tmp_path: Path, settings: Any) -> Path:
    """A mounted folder that sources may read."""
    folder = tmp_path / "share"
    folder.mkdir()
    settings.RAGD_SOURCE_FOLDERS = [str(tmp_path)]
    return folder


@pytest.fixture
def connect(notes: Any) -> Callable[..., Source]:
    """A source of the collection notes: connect("folder", path="/x")."""
    from collections_app.sources.records import SourceValues, save_source

    def make(kind: str, *, secret: str | None = None, into: str = "", **settings: Any) -> Source:
        values = SourceValues(kind, f"a {kind}", settings, secret=secret, prefix=into)
        return save_source(notes, values)

    return make
