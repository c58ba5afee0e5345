from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from collections_app.documents.services import ingest_text
from collections_app.models import Chunk, Collection, IndexVersion
from tests.fakes.faults import Fault, failing
from tests.fakes.openai_server import OpenAIServer

TEXT = "\n\n".join(f"Paragraph {number} speaks of subject {number} with some more words." for number in range(20))


def rebuild(*arguments: str) -> Any:
    out = StringIO()
    call_command("ragd", "index", "rebuild", "notes", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def test_a_rebuild_in_this_process_tells_what_became_of_it(notes: Collection, capsys: Any) -> None:
    ingest_text(notes, "a", TEXT)
    answer = rebuild("--here", "--target-tokens", "20", "--overlap-tokens", "0", "--no-hybrid")
    assert (answer["index_version"], answer["state"], answer["documents"]) == (2, "serving", 1)
    assert answer["chunks"] == Chunk.objects.count() > 5
    assert capsys.readouterr().err == "Index version 2: serving\n"
    notes.refresh_from_db()
    assert (notes.index_version, notes.hybrid_enabled, notes.chunk_policy["target_tokens"]) == (2, False, 20)
    assert rebuild("--here", "--back-to", "1")["index_version"] == 1
    notes.refresh_from_db()
    assert (notes.index_version, notes.hybrid_enabled, notes.chunk_policy) == (1, True, {})


def test_without_choices_it_is_made_anew_as_it_is(notes: Collection) -> None:
    ingest_text(notes, "a", TEXT)
    rebuild("--here")
    first, second = IndexVersion.objects.order_by("number")
    assert (first.hash, first.state, second.state) == (second.hash, "retired", "serving")


def test_it_can_be_started_only(notes: Collection, capsys: Any) -> None:
    assert rebuild("--no-wait", "--manual")["state"] == "building"
    assert IndexVersion.objects.get(number=2).automatic is False
    assert capsys.readouterr().err == ""


def test_a_failure_is_told_by_the_exit_status(notes: Collection, embeddings: OpenAIServer, settings: Any) -> None:
    settings.RAGD_JOB_MAX_ATTEMPTS = 1
    ingest_text(notes, "a", TEXT)
    embeddings.script(
        Fault(), *[failing(401)] * 9, model="text-embedding-3-large"
    )  # the trial goes well, the work does not
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        other = ("--embed-model", "text-embedding-3-large", "--embed-dims", "48")
        call_command("ragd", "index", "rebuild", "notes", *other, "--here", "--json", stdout=out)
    told = json.loads(out.getvalue())
    assert (ended.value.code, told["state"]) == (1, "failed")
    assert "401" in told["error"]
    notes.refresh_from_db()
    assert notes.index_version == 1


def test_the_way_back_takes_no_choices(notes: Collection) -> None:
    with pytest.raises(CommandError, match="--back-to takes an index version as it is"):
        call_command("ragd", "index", "rebuild", "notes", "--back-to", "1", "--language", "german")
