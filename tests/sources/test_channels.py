"""Sources over the API and the command line, and the gauge of their states."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from collections_app.access.api_keys import NewKey, create_key
from collections_app.models import Collection, Operation, Source
from collections_app.sources.records import count_states
from collections_app.tasks import run_operation
from tests.api.conftest import Api

pytestmark = pytest.mark.django_db

ALL = "/collections/notes/sources"


def test_a_source_by_the_api(notes: Collection, share: Path) -> None:
    api = Api(Client(), create_key(NewKey("tests"))[1])
    (share / "a.txt").write_text("About a.")
    body = {"kind": "folder", "name": "share", "settings": {"path": str(share)}, "schedule": 60, "tags": ["x"]}
    refused = api.send("POST", ALL, body | {"settings": {"path": "/etc"}})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "path")
    made = api.send("POST", ALL, body)
    assert (made.status_code, made.json()["state"], made.json()["documents"]) == (201, "new", 0)
    pk = made.json()["id"]
    assert "secret" not in made.json()
    begun = api.send("POST", f"{ALL}/{pk}/sync", {"dry_run": True})
    assert (begun.status_code, begun.json()["state"]) == (202, "running")
    assert api.send("POST", f"{ALL}/{pk}/sync", {}).status_code == 409
    run_operation(begun.json()["id"])
    run = api.send("GET", f"{ALL}/{pk}/runs/{begun.json()['id']}", None).json()
    assert (run["report"]["added"], run["changes"]) == (1, [{"doc_id": "a.txt", "kind": "added", "reason": ""}])
    assert [each["report"]["dry_run"] for each in api.send("GET", "/operations?kind=sync", None).json()["items"]] == [
        True
    ]
    assert [each["name"] for each in api.send("GET", ALL, None).json()["items"]] == ["share"]
    assert api.send("POST", f"{ALL}/{pk + 1}/sync", {}).status_code == 404


def ragd(*arguments: str) -> tuple[dict[str, Any], int]:
    out, status = StringIO(), 0
    try:
        call_command("ragd", *arguments, "--json", stdout=out)
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    return json.loads(out.getvalue()), status


def test_a_source_by_the_command_line(notes: Collection, share: Path, connect: Any) -> None:
    for name in ("a.txt", "b.txt"):
        (share / name).write_text(f"About {name}.")
    source = connect("folder", path=str(share))
    answer, status = ragd("sync", "notes", "--dry-run")
    assert (status, answer["runs"][0]["added"], answer["runs"][0]["dry_run"]) == (0, 2, True)
    answer, status = ragd("sync", "notes", "--source", source.name)
    assert (status, [each["doc_id"] for each in answer["runs"][0]["changes"]]) == (0, ["a.txt", "b.txt"])
    rows = ragd("api", "GET", "/v1/collections/notes/sources")[0]["items"]
    assert [each["state"] for each in rows] == ["succeeded"]
    share.rename(share.parent / "gone")
    answer, status = ragd("sync", "notes")
    assert (status, answer["runs"][0]["state"]) == (1, "failed")
    assert count_states() == {"new": 0, "succeeded": 0, "failed": 1, "held": 0, "disabled": 0}
    assert Operation.objects.count() == 3 and Source.objects.get().last_error
