"""Every verb: that it is found, helps, refuses what is wrong, prints one JSON object and keeps to permissions."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from collections_app.access import people
from collections_app.access.permissions import Role
from collections_app.commands.subcommand import find_subcommands, show_plainly
from collections_app.models import Collection
from tests.commands.conftest import run, run_json

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
