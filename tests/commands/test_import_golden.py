"""Golden questions out of a file, from the shell."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from collections_app.collections.services import create_collection
from evaluation_app.golden.sets import create_set
from evaluation_app.models import GoldenQuestion

pytestmark = pytest.mark.django_db


def send(*arguments: str) -> Any:
    out = StringIO()
    call_command("ragd", "import", "golden", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_a_file_is_looked_at_and_imported(tmp_path: Path) -> None:
    create_collection(name="woods")
    create_set("trees", "woods")
    file = tmp_path / "trees.csv"
    file.write_text("input,expected_output,docs,id\nHow old?,Very.,oak,1\n")
    with pytest.raises((CommandError, SystemExit)):
        send("trees", str(file))
    columns = ("--column", "docs=expected_doc_ids", "--column", "id=")
    dry = send("trees", str(file), *columns, "--dry-run")
    assert (dry["dry_run"], dry["counts"]["added"], dry["lines"][0]["unknown"]) == (True, 1, ["oak"])
    assert not GoldenQuestion.objects.exists()
    assert send("trees", str(file), *columns)["version"] == 2
    made = GoldenQuestion.objects.get()
    assert (made.question, made.expected_answer, made.expected_doc_ids) == ("How old?", "Very.", ["oak"])
