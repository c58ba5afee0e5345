"""Collections on pages: list, making, settings, statistics, deletion."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from django.test import Client

from tests.web.pages import attribute, has, text, texts, toasts


def test_a_collection_is_made(visitor: Client) -> None:
    from collections_app.models import Collection

    values = {"name": "Field notes", "description": "Seen outdoors", "hybrid_enabled": "on", "language": "simple"}
    values |= {"embed_model": "all-MiniLM-L6-v2", "embed_dims": "384", "kind": "words", "target_tokens": "50"}
    response = visitor.post("/collections/?view=new", values)
    assert response["Location"] == "/collections/Field%20notes/upload/"
    made = Collection.objects.get(name="Field notes")
    assert (made.description, made.language, made.hybrid_enabled) == ("Seen outdoors", "simple", True)
    assert made.chunk_policy.items() >= {"kind": "words", "target_tokens": 50}.items()
    assert [("good", "Field notes" in said) for _, said in toasts(visitor.get(response["Location"]))] == [
        ("good", True)
    ]


def test_what_was_typed_stays_when_a_collection_is_refused(visitor: Client, fill: Callable[..., Any]) -> None:
    fill("nature", 0)
    values = {"name": "nature", "description": "typed <here>", "language": "english", "embed_model": "all-MiniLM-L6-v2"}
    response = visitor.post("/collections/?view=new", values | {"embed_dims": "384"})
    html = text(response)
    assert response.status_code == 409
    assert 'value="nature"' in html
    assert "typed &lt;here&gt;" in html
    assert 'id="id_name_error"' in html


def test_each_wrong_field_says_so_beside_itself(visitor: Client) -> None:
    values = {"name": "a/b", "language": "english", "embed_model": "all-MiniLM-L6-v2", "embed_dims": "512"}
    response = visitor.post("/collections/?view=new", values | {"kind": "words"})
    assert response.status_code == 422
    assert 'aria-invalid="true"' in text(response)
    response = visitor.post("/collections/?view=new", values | {"name": "ok"})
    assert response.status_code == 400
    assert "embed_dims_error" in text(response)
    response = visitor.post("/collections/?view=new", values | {"name": "ok", "embed_dims": 384, "target_tokens": 0})
    assert response.status_code == 422
    assert "target_tokens_error" in text(response)
    assert '<details class="fold" open>' in text(response)


def test_settings_change_what_comes_next(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill("nature", 1)
    settings = visitor.get("/collections/nature/settings/")
    assert attribute(settings, "[name=revisions]", "placeholder") == "Default: 10"
    assert not has(settings, "[name=target_tokens]")
    sent = {"title": "The park", "description": "new", "starters": "What grows?\n\nWho leads?"}
    answer = visitor.post("/collections/nature/settings/", sent)
    assert answer["Location"] == "/collections/nature/settings/"
    collection.refresh_from_db()
    assert (collection.label, collection.starters) == ("The park", ["What grows?", "Who leads?"])
    settings = visitor.get("/collections/nature/settings/")
    assert attribute(settings, "[name=title]", "value") == "The park"
    assert texts(settings, "[name=starters]") == ["What grows? Who leads?"]
    for wrong in ({"title": "x" * 201}, {"starters": "\n".join(f"{number}?" for number in range(9))}):
        assert has(visitor.post("/collections/nature/settings/", wrong), f"#id_{next(iter(wrong))}_error")
    assert (collection.description, collection.chunk_policy) == ("new", {"target_tokens": 16, "overlap_tokens": 4})


def test_settings_state_what_findings_lead_to(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill("nature", 1)
    visitor.post("/collections/nature/settings/", {"action": "refuse", "min_score": "50"})
    collection.refresh_from_db()
    assert collection.security == {"action": "refuse", "min_score": 50.0}
    kept = text(visitor.get("/collections/nature/settings/"))
    assert re.search(r'<option value="refuse"[^>]*selected', kept) and 'value="50' in kept
    for wrong in ({"action": "refuse", "min_score": "101"}, {"action": "block"}):
        assert visitor.post("/collections/nature/settings/", wrong).status_code == 422
    collection.refresh_from_db()
    assert collection.security == {"action": "refuse", "min_score": 50.0}


def test_a_policy_that_was_tried_is_that_of_new_documents(visitor: Client, fill: Callable[..., Any]) -> None:
    collection = fill("nature", 1)
    chunking = "/collections/nature/index-versions/"
    tried = {"kind": "words", "target_tokens": "40", "overlap_tokens": "8", "max_chars": "900"}
    wrong = visitor.post(chunking, tried | {"do": "policy", "overlap_tokens": "40"})
    assert (wrong.status_code, collection.chunk_policy) == (422, {"target_tokens": 16, "overlap_tokens": 4})
    before = collection.documents.get().chunk_count
    assert visitor.post(chunking, tried | {"do": "policy"})["Location"] == chunking
    collection.refresh_from_db()
    assert collection.chunk_policy == {"kind": "words", "target_tokens": 40, "overlap_tokens": 8, "max_chars": 900}
    assert collection.documents.get().chunk_count == before
    assert has(visitor.get(chunking, tried), "#preview button.primary[disabled]")
    rebuild = visitor.get(f"/collections/nature/index-versions/?{urlencode(tried | {'target_tokens': '60'})}")
    assert attribute(rebuild, "#change [name=target_tokens]", "value") == "60"


def test_deleting_asks_for_the_name_and_names_the_counts(
    visitor: Client, fill: Callable[..., Any], settings: Any
) -> None:
    from collections_app.models import Collection

    chunks = sum(fill("nature", 3).documents.values_list("chunk_count", flat=True))
    html = text(visitor.get("/collections/nature/settings/?view=delete"))
    assert f"3 documents and {chunks} chunks will be deleted" in html
    refused = visitor.post("/collections/nature/settings/?view=delete", {"typed_name": "Nature"})
    assert refused.status_code == 422
    assert has(refused, "#id_typed_name_error")
    assert Collection.objects.live().filter(name="nature").exists()
    settings.RAGD_TRASH_DAYS = 0  # else to the trash: tests/access/test_collection_trash.py
    done = visitor.post("/collections/nature/settings/?view=delete", {"typed_name": "nature"})
    assert done["Location"].startswith("/collections/operation/")
    assert not Collection.objects.live().filter(name="nature").exists()
    proof = text(visitor.get(done["Location"]))
    assert "nature" in proof
    assert f'Chunks</th><td class="num">{chunks}</td><td class="num">0</td>' in proof


def test_chunk_lengths_are_counted_in_bins(fill: Callable[..., Any]) -> None:
    from collections_app.collections.services import draw_lengths
    from collections_app.index.stores import open_store
    from collections_app.models import Chunk

    collection = fill("nature", 3)
    found = draw_lengths(open_store(collection).count_lengths())
    assert found is not None
    lengths = list(Chunk.objects.of(collection).values_list("token_count", flat=True))
    assert sum(found.counts) == len(lengths)
    assert found.highest == max(lengths)
    assert [count for _, _, count in found.rows] == [count for count in found.counts if count]
    assert draw_lengths(open_store(fill("empty", 0)).count_lengths()) is None
