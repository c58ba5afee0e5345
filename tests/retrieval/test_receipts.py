"""Receipts: signed, verified by the right key alone, and repeated over an export to the last digit."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.db import connection
from django.test import Client

from collections_app.documents.services import change_state, ingest_text
from collections_app.models import Collection
from ragd.errors import InvalidInput
from ragd.store.store import fetch_all
from ragd.types import RetrievePlan, canonical_json
from retrieval_app.models import QueryRun
from retrieval_app.runs.receipts import (
    KEY_FILE,
    PublicKey,
    Verification,
    check_form,
    make_receipt,
    own_key,
    read_key,
    verify,
)
from retrieval_app.search import query_pipeline
from retrieval_app.search.query_pipeline import QueryRequest
from tests.collections.test_travelling import pack
from tests.commands.conftest import run_json
from tests.exports import export_to_file
from tests.retrieval.corpus import bearer, get, kept, make_collection
from tests.security.hostile.files import sealed, with_row

QUESTION = "How much water does the main pump move?"
PLAN = RetrievePlan(k=4)


@pytest.fixture(autouse=True)
def own_folder(settings: Any, tmp_path: Path) -> Path:
    settings.RAGD_VAR = tmp_path
    return tmp_path


@pytest.fixture
def run(house: Collection, db: None) -> QueryRun:
    return query_pipeline.ask(QueryRequest(house, QUESTION, PLAN, "api"))


def other_key() -> PublicKey:
    return PublicKey(Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))


def kinds(result: Verification) -> list[str]:
    return [problem.kind for problem in result.problems]


def test_a_receipt_says_what_was_asked_found_and_answered(run: QueryRun) -> None:
    receipt = make_receipt(run)["receipt"]
    assert (receipt["run_id"], receipt["question"], receipt["answer"]) == (str(run.pk), QUESTION, run.answer)
    assert (receipt["plan"], receipt["plan_hash"], receipt["citations"]) == (run.plan, run.plan_hash, run.citations)
    assert receipt["index_version"] == {"number": 1, "hash": None}
    assert [f"{row['doc_id']}#{row['chunk_index']}" for row in receipt["retrieved"]] == run.retrieved_ids
    assert {len(row["content_sha256"]) for row in receipt["retrieved"]} == {64}
    assert receipt["repeatable"] is True


def test_the_key_is_made_once_and_for_its_owner_alone(own_folder: Path) -> None:
    first = own_key()
    file = own_folder / KEY_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert own_key() == first == read_key(first.text)
    assert [path.name for path in own_folder.iterdir()] == [KEY_FILE]


def test_of_two_threads_that_make_the_key_the_first_one_wins(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, made = os.link, []

    def make_another_first(source: str, path: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        made.append(own_key())
        link(source, path)

    monkeypatch.setattr(os, "link", make_another_first)
    assert [own_key()] == made
    assert [path.name for path in own_folder.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("text", ["", "not base64", "YWJj"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_key(text)


def test_a_receipt_that_was_written_and_read_is_valid(run: QueryRun) -> None:
    read = json.loads(json.dumps(make_receipt(run), ensure_ascii=False, indent=1))
    result = verify(read, own_key())
    assert (result.passed, result.signature_valid, result.repeated) == (True, True, False)


@pytest.mark.parametrize(
    "path", [("answer",), ("question",), ("plan", "k"), ("retrieved", 0, "score"), ("retrieved", 0, "content_sha256")]
)
def test_a_change_anywhere_is_told(run: QueryRun, path: tuple[Any, ...]) -> None:
    changed = json.loads(json.dumps(make_receipt(run)))
    place = changed["receipt"]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = 0.5 if isinstance(place[path[-1]], float) else "something else"
    result = verify(changed, own_key())
    assert (kinds(result), result.signature_valid) == (["tampered"], False)


def test_another_key_is_told_apart_from_a_change(run: QueryRun) -> None:
    receipt = make_receipt(run)
    assert kinds(verify(receipt, other_key())) == ["wrong_key"]
    stolen = receipt | {"signature": receipt["signature"] | other_key().as_dict()}
    assert kinds(verify(stolen, own_key())) == ["wrong_key"]


@pytest.mark.parametrize("values", [None, [], {}, {"receipt": {}, "signature": {}}])
def test_what_is_no_receipt_is_refused(values: Any) -> None:
    with pytest.raises(InvalidInput):
        check_form(values)


def test_the_api_gives_it_to_who_may_see_the_run(client: Client, run: QueryRun) -> None:
    key = bearer(scope="read", collections=["house"])
    status, receipt = get(client, f"/v1/runs/{run.pk}/receipt", key)
    _, public = get(client, "/v1/receipt-key", key)
    assert (status, public) == (200, own_key().as_dict())
    assert verify(receipt, read_key(public["public_key"])).passed
    make_collection("other", empty=True)
    status, refused = get(client, f"/v1/runs/{run.pk}/receipt", bearer(collections=["other"]))
    assert (status, refused["error"]["type"]) == (404, "unknown_run")
    QueryRun.objects.filter(pk=run.pk).update(status="error")
    status, refused = get(client, f"/v1/runs/{run.pk}/receipt", key)
    assert (status, refused["error"]["type"]) == (409, "not_answered")


@pytest.fixture
def exported(transactional_db: None, own_folder: Path) -> Iterator[tuple[Collection, dict[str, Any], Path]]:
    """A collection whose documents have several revisions and states, a receipt of an answer, and its export."""
    with kept(make_collection()) as collection:
        ingest_text(collection, "kitchen.md", "Coffee costs 60 cents beside the pump of the sink.", title="Kitchen")
        change_state(collection, ["archive.md"], "disabled")
        receipt = make_receipt(query_pipeline.ask(QueryRequest(collection, QUESTION, PLAN, "api")))
        export_to_file(collection, own_folder / "house.ragd.zip")
        yield collection, receipt, own_folder / "house.ragd.zip"


def test_an_export_gives_the_retrieval_again(exported: tuple[Collection, dict[str, Any], Path]) -> None:
    _, receipt, export = exported
    result = verify(receipt, own_key(), export)
    assert (result.problems, result.repeated) == ([], True)
    assert not fetch_all(connection, "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'ragd_scratch%%'")
    (export.parent / "receipt.json").write_text(json.dumps(receipt))
    verified = run_json("check", "receipt", str(export.parent / "receipt.json"), "--export", str(export))
    assert (verified["passed"], verified["repeated"]) == (True, True)
    damaged = export.with_name("damaged.zip")
    damaged.write_bytes(export.read_bytes()[:-200])
    assert kinds(verify(receipt, own_key(), damaged)) == ["export"]
    swapped = export.with_name("swapped.zip")
    with zipfile.ZipFile(export) as old, zipfile.ZipFile(swapped, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"400 litres", b"900 litres"))
    assert kinds(verify(receipt, own_key(), swapped)) == ["export"]


def doubled(members: dict[str, bytes]) -> None:
    """The first document stands twice."""
    first, rest = members["documents.jsonl"].split(b"\n", 1)
    members["documents.jsonl"] = first + b"\n" + first + b"\n" + rest
    manifest = json.loads(members["manifest.json"])
    manifest["members"]["documents.jsonl"]["rows"] += 1
    manifest["counts"]["documents"] += 1
    members["manifest.json"] = json.dumps(manifest).encode()
    sealed(members)


def test_rows_that_no_collection_holds_are_a_problem_of_the_export(
    exported: tuple[Collection, dict[str, Any], Path],
) -> None:
    _, receipt, export = exported
    changed = export.with_name("changed.zip")
    changes = (
        with_row("documents.jsonl", state="perhaps"), with_row("documents.jsonl", revision="x"),
        with_row("chunks.jsonl", tags="abc"), with_row("chunks.jsonl", start_char=None), doubled,
    )  # fmt: skip
    for change in changes:
        changed.write_bytes(pack(export, change).read())
        assert kinds(verify(receipt, own_key(), changed)) == ["export"]


def test_what_an_export_of_another_state_gives_otherwise_is_told(
    exported: tuple[Collection, dict[str, Any], Path],
) -> None:
    collection, receipt, export = exported
    ingest_text(collection, "pump.md", "The main pump moves 900 litres of water per minute.", title="Pump")
    changed = export.with_name("changed.zip")
    export_to_file(collection, changed)
    result = verify(receipt, own_key(), changed)
    assert (result.signature_valid, result.repeated, set(kinds(result))) == (True, True, {"result"})
    assert "pump.md#0" in result.problems[0].message
    assert "revision 1 in the receipt, 2 in the export" in result.problems[0].message
    hidden = receipt["receipt"] | {"repeatable": False}
    signed = json.loads(canonical_json({"receipt": hidden, "signature": receipt["signature"]}))
    assert kinds(verify(signed, own_key(), changed)) == ["tampered"]


def test_the_commands_end_with_what_they_found(run: QueryRun, own_folder: Path) -> None:
    file = own_folder / "receipt.json"
    address = f"/v1/runs/{run.pk}/receipt"
    file.write_text(json.dumps(run_json("api", "GET", address)))
    nowhere = str(own_folder / "none" / "receipt.json")
    assert "error" in run_json("api", "GET", address, "--output", nowhere, status=2)
    assert run_json("check", "receipt", str(file))["passed"] is True
    assert run_json("api", "GET", "/v1/receipt-key") == own_key().as_dict()
    assert (
        run_json("check", "receipt", str(file), "--key", other_key().text, status=1)["problems"][0]["kind"]
        == "wrong_key"
    )
    file.write_text(file.read_text().replace("water", "wine"))
    assert run_json("check", "receipt", str(file), status=1)["problems"][0]["kind"] == "tampered"
