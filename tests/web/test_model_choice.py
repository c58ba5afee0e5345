"""Choosing an embedding model: the list says what each is, and the page says at once what is chosen or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from collections_app.collections.services import create_collection
from ragd.models import multilingual_e5
from tests.web.pages import texts

ENGLISH, MULTILINGUAL = "all-MiniLM-L6-v2", multilingual_e5.MODEL


def choose(client: Client, model: str, dims: str = "", language: str = "auto") -> dict[str, str]:
    """What the page says, by its data attributes."""
    values = {"embed_model": model, "embed_dims": dims, "language": language}
    html = client.get("/models/", {"view": "choice"} | values, headers={"HX-Request": "true"}).content.decode()
    return dict(re.findall(r'data-(model|dims|advised|installed|refused)="([^"]*)"', html)) | {"html": html}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 2_000_000)
    monkeypatch.setattr(multilingual_e5, "find_model", lambda: tmp_path)


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multilingual_e5, "find_model", lambda: None)


@pytest.mark.parametrize("language", ["auto", "german", "simple"])
def test_the_multilingual_model_is_offered_for_other_languages(
    language: str, admin_client: Client, installed: None
) -> None:
    said = choose(admin_client, ENGLISH, language=language)
    assert (said["model"], said["dims"]) == (ENGLISH, "384")
    assert (said["advised"], said["installed"]) == (MULTILINGUAL, "true")
    assert "advised" not in choose(admin_client, ENGLISH, language="english")
    taken = choose(admin_client, MULTILINGUAL, language=language)
    assert (taken["model"], taken["dims"]) == (MULTILINGUAL, "384") and "advised" not in taken
    assert "2.0 MB" in taken["html"]


def test_one_that_is_not_installed_is_offered_with_how_to_install_it(admin_client: Client, missing: None) -> None:
    said = choose(admin_client, ENGLISH, language="german")
    assert (said["advised"], said["installed"]) == (MULTILINGUAL, "false") and "EXTRAS=multilingual" in said["html"]
    refused = choose(admin_client, MULTILINGUAL)
    assert refused["refused"] == "embed_model" and "EXTRAS=multilingual" in refused["html"]


def test_an_unknown_model_is_refused_at_once_with_what_is_known(admin_client: Client, installed: None) -> None:
    said = choose(admin_client, "no-such-model")
    assert said["refused"] == "embed_model" and ENGLISH in said["html"] and MULTILINGUAL in said["html"]
    assert choose(admin_client, "")["model"] == ENGLISH, "the default"
    assert choose(admin_client, ENGLISH, "512")["refused"] == "embed_dims"
    assert choose(admin_client, ENGLISH, "many")["refused"] == "embed_dims"


def test_with_an_endpoint_any_name_may_be_typed(admin_client: Client, settings: Any, missing: None) -> None:
    settings.RAGD_EMBED_BASE_URL = "http://127.0.0.1:9/v1"
    for page in ("/collections/?view=new", "/collections/docs/index-versions/"):
        create_collection(name="docs") if "docs" in page else None
        assert texts(admin_client.get(page), "#embed-models option")
    typed = choose(admin_client, "our-own", "12")
    assert (typed["model"].partition("#")[0], typed["dims"]) == ("our-own", "12")
    assert choose(admin_client, "our-own")["refused"] == "embed_dims", "nobody knows how many it makes"
    assert choose(admin_client, "text-embedding-3-small")["dims"] == "1536", "its documentation says so"
