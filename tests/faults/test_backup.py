"""pg_dump and pg_restore as the documentation says: what comes back is sound and searches the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.db import connection

import ragd
from collections_app.collections.deletion import purge_collection
from collections_app.collections.services import create_collection
from collections_app.documents.services import ingest_text
from collections_app.index.services import start_index_version
from collections_app.index.stores import open_store
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection
from ragd.store.store import Store
from ragd.types import RetrievePlan
from ragd_site.runtime.programs import find_wheel_binaries
from tests.builders import WordEmbedder

QUESTION = "whales and krill"
PLANS = tuple(RetrievePlan(mode=mode, k=5) for mode in ("vector", "lexical", "hybrid"))


@pytest.fixture
def house(transactional_db: None) -> Iterator[Collection]:
    """A collection with an index version beside the one that serves, whose table is detached."""
    collection = create_collection(name="kept")
    for number, text in enumerate(("Whales eat krill.", "Redwoods are tall.", "Rivers flow to the sea.")):
        ingest_text(collection, f"{number}.md", text, tags=["nature"])
    run_job(start_index_version(collection, {"language": "simple"}, automatic=False).jobs.get().pk)
    yield collection
    purge_collection(collection)


def address(name: str) -> str:
    kept = connection.settings_dict
    return f"postgresql://{kept['USER']}:{quote(kept['PASSWORD'])}@{kept['HOST']}:{kept['PORT']}/{name}"


def test_a_dump_comes_back_whole(house: Collection, tmp_path: Path) -> None:
    tools = find_wheel_binaries()
    dump, restored = tmp_path / "ragd.dump", "test_restored"
    source = str(connection.settings_dict["NAME"])
    run = {"check": True, "capture_output": True}
    subprocess.run([tools / "pg_dump", "--format=custom", f"--file={dump}", address(source)], **run)  # type: ignore[call-overload]
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {restored}")
        cursor.execute(f"CREATE DATABASE {restored} TEMPLATE template0")
    try:
        command = [tools / "pg_restore", "--exit-on-error", "--no-owner", f"--dbname={address(restored)}", dump]
        subprocess.run(command, **run)  # type: ignore[call-overload]
        with psycopg.connect(address(restored)) as other:
            embedder = open_store(house).embedder
            before = [ragd.retrieve(QUESTION, plan, open_store(house)) for plan in PLANS]
            after = [ragd.retrieve(QUESTION, plan, Store(other, "kept", embedder)) for plan in PLANS]
            assert before == after and all(before)
            tables = other.execute(
                "SELECT relname, relispartition FROM pg_class WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g' "
                "ORDER BY relname"
            ).fetchall()
            assert [attached for _, attached in tables] == [True, False]
            words = WordEmbedder(dims=384, model=house.embed_model)
            chunk = ragd.Chunk("new.md", 0, "A new text.", 0, 11)
            assert ragd.index([chunk], Store(other, "kept", words))["written"] == 1, "row numbers go on"
            other.rollback()
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {restored} WITH (FORCE)")
