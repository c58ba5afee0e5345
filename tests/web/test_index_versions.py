from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from collections_app.jobs.dispatch import run_job
from collections_app.models import Chunk, Collection, IndexVersion, IngestJob
from tests.web.pages import attribute, has, tones, tree

pytestmark = pytest.mark.usefixtures("bound")

AT = "/collections/nature/index-versions/"
FORM = {
    "embed_model": "all-MiniLM-L6-v2", "embed_dims": 384, "language": "auto", "hybrid_enabled": "on",
    "activate": "automatic", "kind": "structure", "target_tokens": 8, "overlap_tokens": 0, "max_chars": "",
}  # fmt: skip


def page(visitor: Client, address: str = AT, **values: Any) -> str:
    response = visitor.post(address, values) if values else visitor.get(address)
    assert response.status_code == 200
    return re.sub(r"\s+", " ", response.content.decode())


def versions(visitor: Client) -> dict[str, str]:
    """Index version -> state, as its page lists them."""
    rows = tree(visitor.get(AT)).css("tr[data-version]")
    return {str(row.attributes["data-version"]): str(row.attributes["data-state"]) for row in rows}


def run_last() -> str | None:
    return run_job(IngestJob.objects.filter(kind="index_version").newest()[0].pk)


def test_a_change_is_estimated_then_started_then_served(visitor: Client, fill: Callable[..., Collection]) -> None:
    collection = fill()
    before = Chunk.objects.count()
    html = page(visitor)
    assert 'value="estimate"' in html and 'value="start"' not in html
    html = page(visitor, **FORM, do="estimate")
    assert "Changed: chunking policy." in html
    assert f"(currently {before})" in html and "chunks/s" in html
    assert 'name="target_tokens" value="8"' in html
    assert IndexVersion.objects.count() == 1
    response = visitor.post(AT, FORM | {"do": "start"})
    assert (response.status_code, response["Location"]) == (302, AT)
    shown = visitor.get(AT)
    assert tones(shown) == ["good"] and versions(visitor) == {"2": "building", "1": "serving"}
    html = shown.content.decode()
    assert 'hx-trigger="every 2s"' in html and f'action="{AT}2/"' in html and 'value="cancel"' in html
    assert 'value="estimate"' not in html
    assert run_last() == "succeeded"
    ended = visitor.get(AT, headers={"HX-Request": "true", "HX-Target": "index_versions"})
    assert ended["HX-Refresh"] == "true"
    html = page(visitor)
    assert f'action="{AT}1/"' in html and 'value="activate"' in html and "up to date" in html
    collection.refresh_from_db()
    assert (collection.index_version, collection.chunk_policy["target_tokens"]) == (2, 8)


def test_the_way_back_and_dropping_ask_and_tell(visitor: Client, fill: Callable[..., Collection]) -> None:
    fill(documents=2)
    visitor.post(AT, FORM | {"do": "start"})
    run_last()
    fill(documents=3)
    assert attribute(visitor.get(AT), "tr[data-version='1']", "data-added") == "1"
    assert tones(visitor.post(f"{AT}1/", {"do": "activate"}, follow=True)) == ["good"]
    assert tones(visitor.post(f"{AT}1/", {"do": "cancel"}, follow=True)) == ["good"]
    assert has(visitor.get(AT), f"form[action='{AT}1/'] button[value=drop]")
    assert IndexVersion.objects.get(number=1).state == "retired"
    assert tones(visitor.post(f"{AT}1/", {"do": "drop"}, follow=True)) == ["good"]
    assert tones(visitor.post(f"{AT}2/", {"do": "drop"}, follow=True)) == ["bad"]
    assert versions(visitor)["2"] == "serving"
    assert visitor.post(f"{AT}7/", {"do": "drop"}).status_code == 404


def test_what_is_refused_stands_beside_its_field(visitor: Client, fill: Callable[..., Collection]) -> None:
    fill(documents=1)
    response = visitor.post(AT, FORM | {"embed_dims": 7, "do": "estimate"})
    assert response.status_code == 400
    assert "all-MiniLM-L6-v2 makes 384 dimensions, not 7" in response.content.decode()
    response = visitor.post(AT, FORM | {"target_tokens": 8, "overlap_tokens": 9, "do": "start"})
    assert response.status_code == 422
    assert not IndexVersion.objects.filter(number=2).exists()
