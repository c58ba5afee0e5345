"""`manage.py ragd api`: the API of this process, without a key, as the server itself or as a person."""

from __future__ import annotations

import json
import sys
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from collections_app.access import people
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.models import ApiKey, AuditEvent, Collection
from retrieval_app.models import QueryRun
from tests.commands.conftest import run, run_json
from tests.fakes.openai_server import OpenAIServer


def test_json_is_laid_out_or_one_line(notes: Collection) -> None:
    said = run("api", "get", "/v1/collections/notes")
    assert len(said.splitlines()) > 5
    assert json.loads(said) == run_json("api", "GET", "/v1/collections/notes")


def test_a_name_that_is_not_ascii_is_found_escaped_or_not(notes: Collection) -> None:
    create_collection(name="Bücher & Hefte")
    for path in ("/v1/collections/Bücher & Hefte", "/v1/collections/B%C3%BCcher%20%26%20Hefte"):
        assert run_json("api", "GET", path)["name"] == "Bücher & Hefte"


def test_a_body_comes_from_the_line_a_file_or_standard_input(
    notes: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "body.json"
    file.write_text('{"name": "second"}')
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(b'{"name": "third"}')))
    for data in ('{"name": "first"}', f"@{file}", "-"):
        run_json("api", "POST", "/v1/collections", "--data", data)
    assert set(Collection.objects.values_list("name", flat=True)) == {"notes", "first", "second", "third"}


def test_an_error_is_printed_and_ends_with_1(notes: Collection) -> None:
    assert run_json("api", "GET", "/v1/collections/nowhere", status=1)["error"]["type"] == "unknown_collection"
    assert run_json("api", "GET", "/v1/nowhere", status=1)["error"]["type"] == "not_found"
    assert run_json("api", "PUT", "/v1/collections", status=1)["error"]["type"] == "method_not_allowed"
    refused = run_json("api", "POST", "/v1/collections", "--data", '{"name": "notes"}', status=1)
    assert refused["error"]["field"] == "name"
    assert "no parameter 'odd'" in run_json("api", "GET", "/v1/collections?odd=1", status=1)["detail"]


def test_a_list_is_paged_through_when_asked(notes: Collection) -> None:
    for number in range(5):
        ingest_text(notes, f"{number}.txt", f"text {number}")
    address = ("api", "GET", "/v1/collections/notes/documents?limit=2")
    first = run_json(*address)
    assert len(first["items"]) == 2 and first["next_cursor"]
    whole = run_json(*address, "--query", "q=txt", "--all")
    assert len({each["doc_id"] for each in whole["items"]}) == 5
    assert run_json("api", "GET", "/v1/collections/notes", "--all", status=2)["error"]["type"] == "usage"


def test_an_answer_is_streamed(committed: None, embeddings: OpenAIServer) -> None:
    ingest_text(create_collection(name="notes"), "oak.txt", "Oaks are forty metres tall.")
    ask = ("api", "POST", "/v1/collections/notes/ask", "--data", '{"query": "How tall are oaks?"}')
    events = run(*ask, "--stream")
    assert events.count("event: ") > 2 and "event: final" in events and "forty metres" in events
    assert "forty metres" in run_json(*ask)["answer"]


def test_it_is_whose_it_says_and_leaves_no_key(notes: Collection) -> None:
    ada = User.objects.create_user("ada")
    people.grant(ada, Role.ASKER, notes)
    ingest_text(notes, "oak.txt", "Oaks are forty metres tall.")
    search = ("api", "POST", "/v1/collections/notes/search", "--data", '{"query": "oaks"}')
    assert run_json("--as", "ada", *search)["results"]
    assert run_json(*search)["results"]
    assert set(QueryRun.objects.values_list("user_id", "api_key_label")) == {(ada.pk, ""), (None, "")}
    assert not ApiKey.objects.exists()
    assert run_json("api", "GET", "/v1/api-keys/self", status=1)["error"]["type"] == "unknown_key"


def test_what_it_changes_is_audited_as_done_by_the_person_at_the_shell(notes: Collection) -> None:
    ada = User.objects.create_superuser("ada")
    run_json("--as", "ada", "api", "PATCH", "/v1/collections/notes", "--data", '{"description": "of ada"}')
    run_json("api", "PATCH", "/v1/collections/notes", "--data", '{"description": "of the server"}')
    events = AuditEvent.objects.filter(action="collection.change").order_by("pk")
    assert [(each.actor_kind, each.actor_id, each.actor_name, each.channel) for each in events] == [
        ("user", str(ada.pk), "ada", "cli"), ("system", "", "the system", "cli"),
    ]  # fmt: skip


def test_the_first_key_is_not_given_to_somebody_who_may_not_make_one(notes: Collection) -> None:
    """No key was ever made: the API lets one request of this machine make one, and this is no such request."""
    User.objects.create_user("ada")
    make = ("api", "POST", "/v1/api-keys", "--data", '{"label": "x"}')
    assert run_json("--as", "ada", *make, status=1)["error"]["type"] == "out_of_scope"
    assert not ApiKey.objects.exists()
    assert run_json(*make)["secret_once"].startswith("ragd_")
    assert ApiKey.objects.get().created_by == "the system"


def test_a_header_of_a_client_is_no_local_key(notes: Collection) -> None:
    for name in ("ragd.local_key", "HTTP_RAGD.LOCAL_KEY", "RAGD-LOCAL-KEY"):
        assert Client(headers={name: "1"}).get("/v1/collections").status_code == 401


def test_a_file_appears_when_it_is_whole(notes: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "runs.jsonl"
    run("api", "GET", "/v1/runs?format=jsonl", "--output", str(file))
    assert [path.name for path in tmp_path.iterdir()] == ["runs.jsonl"]
    with pytest.raises(SystemExit) as ended:
        call_command("ragd", "api", "GET", "/v1/nowhere", "--output", str(tmp_path / "none"), stdout=StringIO())
    assert ended.value.code == 1 and not (tmp_path / "none").exists()
