"""A database of an earlier version is migrated and serves the same answers, byte for byte."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings

from ragd import SPEC_VERSION
from ragd_site.runtime.programs import find_wheel_binaries
from tests.upgrade.fixture import without_ratios, without_wording

DATA = Path(__file__).resolve().parent.parent / "data" / "upgrade"
REPOSITORY = Path(__file__).resolve().parents[2]
NAME = "test_upgraded"
LARGEST = 5_000_000
# Fields that answers had not then: of evaluations, access, API keys and security.
ADDED = {
    "failing", "label_threshold", "allow_overrides", "access", "access_from", "document_access.jsonl", "restricted",
    "acts_as", "groups", "last_used_from", "open_role", "previous_until", "requests_per_minute",
    "rotated_at", "scopes", "tokens_per_day",
}  # fmt: skip
# What one answer had otherwise: the prompt is longer, keys say who made them, the manifest lists document_access.jsonl.
CHANGED = {
    "/ask": {"context_tokens", "total_tokens"},
    "/v1/api-keys": {"created_by"},
    "/v1/collections/notes/export": {"manifest.json"},
}


def address(name: str) -> str:
    """The URL of another database on the server of the tests."""
    values = settings.DATABASES["default"]
    return f"postgresql://{values['USER']}:{quote(values['PASSWORD'])}@{values['HOST']}:{values['PORT']}/{name}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a process of this version on the restored and migrated database."""
    with psycopg.connect(address("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {NAME} TEMPLATE template0")
        restore = [find_wheel_binaries() / "pg_restore", "--exit-on-error", "--no-owner", f"--dbname={address(NAME)}"]
        subprocess.run([*restore, DATA / "ragd.dump"], check=True)
        values = os.environ | {"DATABASE_URL": address(NAME), "RAGD_VAR": str(tmp_path_factory.mktemp("var"))}
        values["RAGD_SECRET_KEY"] = "upgrade-fixture"
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], check=True, cwd=REPOSITORY, env=values)
        yield values
        connection.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")


def test_a_migrated_database_serves_the_same_answers(environment: dict[str, str]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.upgrade.fixture", "replay", str(DATA / "answers.json.gz")]
    process = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, check=True)
    recorded = json.loads(gzip.decompress((DATA / "answers.json.gz").read_bytes()))["answers"]
    before, after = (
        [without_ratios(without_wording(row)) for row in rows] for rows in (recorded, json.loads(process.stdout))
    )
    assert len(after) == len(before) > 200
    later = traces_of_evaluations(after)
    pairs = [
        (without_sentences(without_later(old, set())), without_sentences(without_later(new, later)))
        for old, new in zip(before, after, strict=True)
    ]
    differing = [difference(old, new) for old, new in pairs if old != new]
    assert not differing, "\n".join(str(row) for row in differing)


def test_what_was_asked_before_is_of_the_environment_that_asked(environment: dict[str, str]) -> None:
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        runs = connection.execute("SELECT DISTINCT door, environment FROM retrieval_app_queryrun").fetchall()
        apart = connection.execute(
            "SELECT count(*) FROM spans s JOIN retrieval_app_queryrun r ON r.id = s.run_id "
            "WHERE s.environment <> r.environment AND s.type <> 'aitf.rag.evaluate'"
        ).fetchone()
    assert ("worker", "evaluation") in runs and ("api", "production") in runs
    assert {name for door, name in runs if door == "worker"} == {"evaluation"} and apart == (0,)


def test_every_generation_has_the_trigger_of_a_new_one(environment: dict[str, str]) -> None:
    """Also those that are partitions of chunks already: only before a row is written does it get its access."""
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            "SELECT c.relispartition, pg_get_triggerdef(t.oid) LIKE '% BEFORE INSERT OR UPDATE OF %' "
            "FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgname = c.relname || '_document'"
        ).fetchall()
    assert {is_partition for is_partition, _ in found} >= {True} and all(is_new for _, is_new in found)


RUN_SPANS = re.compile(r"/v1/runs/[^/]+/spans(/export|$)")


def test_every_generation_that_is_compared_whole_has_the_compact_index(environment: dict[str, str]) -> None:
    with psycopg.connect(environment["DATABASE_URL"]) as connection:
        rows = connection.execute(
            "SELECT c.relname, i.indisvalid, pg_get_indexdef(i.indexrelid) FROM chunk_stats s"
            " JOIN pg_class c ON c.oid = to_regclass(format('chunks_c%s_g%s', s.collection_id, s.generation))"
            " LEFT JOIN pg_index i ON i.indexrelid = to_regclass(c.relname || '_compact')"
            " WHERE to_regclass(c.relname || '_embedding') IS NULL"
        ).fetchall()
    assert rows and all(
        valid and "ivfflat" in definition and "lists='1'" in definition for _, valid, definition in rows
    )


def traces_of_evaluations(rows: list[dict[str, Any]]) -> set[str]:
    """The traces of later evaluations, which the spans of a run include now."""
    listed = [json.loads(row["answer"])["spans"] for row in rows if re.fullmatch(r"/v1/runs/[^/]+/spans", row["path"])]
    return {span["trace_id"] for spans in listed for span in spans if span["name"].startswith("rag.evaluate ")}


def without_later(row: dict[str, Any], traces: set[str]) -> dict[str, Any]:
    """The answer without the spans of these traces, in whatever form they are told, and without what exports tell now:
    the version of the product in the place of that of the specification, and the fields of CoSAI."""
    if not RUN_SPANS.match(row["path"]) or row["status"] >= 400:
        return row
    values = [json.loads(line) for line in row["answer"].split("\n") if line]
    kept = [as_before(value, traces) for value in values if not is_of(value, traces)]
    return row | {"answer": "\n".join(json.dumps(value, ensure_ascii=False) for value in kept)}


def as_before(value: Any, traces: set[str]) -> Any:
    if isinstance(value, dict):
        told = {name: as_before(item, traces) for name, item in value.items() if name != "CoSAI WS2"}
        if value.get("key") == "service.version":
            told["value"] = {"stringValue": SPEC_VERSION}
        return told | ({"version": SPEC_VERSION} if value.get("vendor_name") == "ragd" else {})
    if not isinstance(value, list):
        return value
    return [as_before(item, traces) for item in value if not is_of(item, traces) and not names_specification(item)]


def names_specification(value: Any) -> bool:
    return isinstance(value, dict) and value.get("key") == "ragd.spec.version"


def is_of(value: Any, traces: set[str]) -> bool:
    """Whether it is one span, or the event of one, of these traces."""
    if not isinstance(value, dict):
        return False
    parts = (value, value.get("context"), value.get("metadata"))
    known = [part for part in parts if isinstance(part, dict)]
    return any(part.get(name) in traces for part in known for name in ("trace_id", "traceId", "correlation_uid"))


def without_sentences(row: dict[str, Any]) -> dict[str, Any]:
    """The answer without what is a sentence or a label of the interface, which may be worded anew."""
    if not row["answer"].startswith("{"):
        return row
    try:
        left_out = ADDED.union(*(names for end, names in CHANGED.items() if row["path"].endswith(end)))
        values = [worded(json.loads(line), left_out) for line in row["answer"].splitlines()]
    except ValueError:  # neither one object nor lines of them
        return row
    return row | {"answer": "\n".join(json.dumps(value, ensure_ascii=False) for value in values)}


def worded(value: Any, left_out: set[str]) -> Any:
    """Without `message` wherever it stands, `title` where it names a field or a measure, and these fields."""
    if isinstance(value, list):
        return [worded(item, left_out) for item in value]
    if not isinstance(value, dict):
        return value
    gone = left_out | {"message"} | ({"title"} if {"field", "verdict"} & set(value) else set())
    return {name: worded(item, left_out) for name, item in value.items() if name not in gone}


def difference(old: dict[str, Any], new: dict[str, Any]) -> tuple[Any, ...]:
    """The request, and what stands where the two answers part."""
    pairs = enumerate(zip(old["answer"], new["answer"], strict=False))
    start = next((position for position, (one, other) in pairs if one != other), 0)
    shown = [row["answer"][max(0, start - 80) : start + 120] for row in (old, new)]
    return (old["method"], old["path"], old["status"], new["status"], *shown)


def test_the_dump_is_small() -> None:
    assert sum(file.stat().st_size for file in DATA.iterdir()) < LARGEST
