"""Which embedder a collection gets."""

from __future__ import annotations

from typing import Any

from collections_app.index.stores import embedder_for
from tests.refusals import refuses


def test_without_an_endpoint_no_text_leaves_the_machine(db: None, settings: Any) -> None:
    settings.RAGD_EMBED_BASE_URL = settings.RAGD_EMBED_API_KEY = ""
    embedder = embedder_for("text-embedding-3-small", 1536)
    assert (embedder.model, embedder.dims) == ("text-embedding-3-small", 1536)
    assert embedder.embed([]) == []
    for ask in (lambda: embedder.embed(["a"]), lambda: embedder.embed_query("a")):
        with refuses("embedder_failed_not_configured", None, "EMBED_BASE_URL") as caught:
            ask()
        assert (caught.value.kind, caught.value.retryable) == ("not_configured", False)
