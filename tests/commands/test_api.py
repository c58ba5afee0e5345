"""`manage.py ragd api`: the API of this process, without a key, as the server itself or as a person.
Every example of docs/cli.md runs.
Every verb: that it is found, helps, refuses what is wrong, prints one JSON object and keeps to permissions."""

from __future__ import annotations

import json
import re
import shlex
import sys
import zipfile
from io import BytesIO, StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from collections_app.access import people
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.commands.subcommand import find_subcommands, show_plainly
from collections_app.documents.services import ingest_text
from collections_app.models import ApiKey, AuditEvent, Collection, IngestJob
from collections_app.uploads.services import submit_uploads
from evaluation_app.models import GoldenQuestion, GoldenSet
from retrieval_app.models import QueryRun
from tests.commands.conftest import run, run_json
from tests.fakes.openai_server import OpenAIServer
from tests.fakes.s3_server import S3Server


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


REPOSITORY = Path(__file__).resolve().parent.parent.parent
PAGE = (REPOSITORY / "docs" / "cli.md").read_text()
EXAMPLES = re.findall(r"^python manage\.py ragd (.+)$", PAGE, re.MULTILINE)


@pytest.mark.slow
def test_every_example_runs(
    committed: None,
    embeddings: OpenAIServer,
    s3_server: S3Server,
    settings: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.RAGD_S3_ENDPOINT = s3_server.url
    settings.AWS_ACCESS_KEY_ID, settings.AWS_SECRET_ACCESS_KEY = s3_server.access_key, s3_server.secret_key
    s3_server.put("docs", "reports/one.txt", b"a report")
    User.objects.create_user("ada")
    User.objects.create_user("grace")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "one.txt").write_text("The largest pump moves 400 litres.")
    (tmp_path / "pumps.csv").write_text("input,docs\nWhich pump moves 40 litres?,all.zip\n")
    with zipfile.ZipFile(tmp_path / "papers" / "all.zip", "w") as archive:
        archive.writestr("two.txt", "A smaller pump moves 40 litres.")
    (other,) = submit_uploads(create_collection(name="other"), [SimpleUploadedFile("a.txt", b"some text")])
    assert other.job and other.batch
    pumps = GoldenSet.objects.create(name="pumps", collection_name="notes")
    GoldenQuestion.objects.create(golden_set=pumps, question="Which pump is the largest?", expected_doc_ids=["one.txt"])
    for example in EXAMPLES:
        words = shlex.split(example.replace("BATCH_ID", str(other.batch.pk)))
        if "RUN_ID" in example:
            words = [word.replace("RUN_ID", str(QueryRun.objects.newest_first()[0].pk)) for word in words]
        out = StringIO()
        try:
            call_command("ragd", *words, stdout=out)
        except SystemExit as exit:  # what waits for a worker is left; there is none here
            assert "--watch" in words, (example, exit.code, out.getvalue())
        assert out.getvalue().strip() or "--output" in words, example
    assert IngestJob.objects.filter(collection__name="notes", state="succeeded").count() >= 4
    assert (tmp_path / "notes.ragd.zip").stat().st_size


SUBCOMMANDS = find_subcommands()
VERBS = {
    "access", "api", "ask", "audit", "backup", "check", "evaluate", "import", "index", "ingest", "jobs", "restore",
    "rotate-secret-key", "search", "status", "sync",
}  # fmt: skip
WRONG = [
    "access", "access grant ada owner", "access grant nobody viewer", "access list nowhere", "access create-key",
    "api GET", "api HEAD /v1/collections", "api GET /collections", "api GET /v1/collections --query limit",
    "api POST /v1/collections --data {", "api POST /v1/collections --data @nowhere", "api POST /v1/jobs --all",
    "ask notes", "audit", "audit erase document notes", "audit anchor /nowhere/at/all", "backup eat", "check",
    "check findings nowhere", "check leaks nobody", "check receipt nowhere.json", "check spans --since yesterday",
    "evaluate", "evaluate nowhere", "import", "import collection nowhere.zip", "import golden notes", "index",
    "index calibrate notes", "index rebuild notes --placement moon", "ingest notes", "ingest notes nowhere.txt",
    "jobs --state odd", "restore", "search notes", "sync", "sync notes", "--as nobody status", "status --as nobody",
    "eat",
]  # fmt: skip


def test_sixteen_verbs_are_found() -> None:
    assert {name.split()[0] for name in SUBCOMMANDS} == VERBS


def test_each_helps(capsys: pytest.CaptureFixture[str]) -> None:
    for name, subcommand in SUBCOMMANDS.items():
        with pytest.raises(SystemExit) as ended:
            call_command("ragd", *name.split(), "--help")
        said = " ".join(capsys.readouterr().out.split())
        assert ended.value.code == 0
        assert subcommand.help in said and "--json" in said and "--as USER" in said, name


def test_a_wrong_command_line_ends_with_2(notes: Collection) -> None:
    User.objects.create_user("ada")
    for line in WRONG:
        with pytest.raises(CommandError) as caught:
            run(*line.split())
        assert caught.value.returncode in (1, 2), line
        if caught.value.returncode == 1:  # argparse, which `call_command` does not let end the process
            assert caught.value.__cause__ is None and str(caught.value).startswith("Error: "), line
        out = StringIO()
        with pytest.raises((CommandError, SystemExit)) as ended:
            call_command("ragd", *line.split(), "--json", stdout=out)
        if isinstance(ended.value, SystemExit):
            assert ended.value.code == 2 and json.loads(out.getvalue())["error"]["type"] == "usage", line


def test_each_answers_in_words_and_as_one_json_object(notes: Collection) -> None:
    for line in (
        "access list notes", "api GET /v1/collections/notes", "audit erase list", "check consistency notes",
        "check findings notes", "check leaks", "check spans", "index rebuild notes --here", "index measure notes",
        "jobs", "search notes oak", "ask notes oak", "status --cluster", "status --models",
    ):  # fmt: skip
        assert isinstance(run_json(*line.split()), dict), line
        assert run(*line.split()).strip(), line


@pytest.mark.parametrize(
    ("line", "viewer_status"),
    [
        ("api GET /v1/collections/notes", 0), ("api DELETE /v1/collections/notes", 1), ("api GET /v1/api-keys", 1),
        ("search notes oak", 1), ("index rebuild notes --no-wait", 1), ("check consistency", 1), ("audit verify", 1),
        ("api POST /v1/api-keys --data {\"label\":\"x\"}", 1), ("status --cluster", 1),
    ],
)  # fmt: skip
def test_as_a_person_each_keeps_to_their_role(notes: Collection, line: str, viewer_status: int) -> None:
    ada = User.objects.create_user("ada")
    User.objects.create_user("eve")
    people.grant(ada, Role.VIEWER, notes)
    run_json("--as", "ada", *line.split(), status=viewer_status)
    run_json(*line.split(), "--as", "ada", status=viewer_status)
    run_json("--as", "eve", *line.split(), status=1)


def test_plain_data_is_shown_a_line_per_value() -> None:
    answer = {
        "collection": "notes", "took_ms": 1.5, "error": "", "complete": True, "counts": {"chunks": 2, "none": None},
        "rows": [{"doc_id": "a", "tags": ["x", "y"]}, {"doc_id": "b", "kept": False}], "names": ["a", "b"],
    }  # fmt: skip
    assert show_plainly(answer).splitlines() == [
        "collection: notes", "took ms: 1.5", "complete: yes", "counts:", "  chunks: 2", "rows:",
        "  doc_id a, tags x y", "  doc_id b, kept no", "names: a b",
    ]  # fmt: skip
    assert "and 10 more" in show_plainly({"rows": [{"number": number} for number in range(60)]})
