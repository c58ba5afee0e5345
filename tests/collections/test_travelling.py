"""A collection exported to one file and imported from it: the same retrieval, and nothing at all of a bad file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.utils import timezone

import ragd
from collections_app.collections import export as exporting
from collections_app.collections import import_stage
from collections_app.collections.deletion import delete_collection, purge_deleted
from collections_app.collections.export import open_export
from collections_app.collections.export_reader import read_manifest
from collections_app.collections.import_stage import import_collection
from collections_app.collections.services import create_collection, get_collection, update_collection
from collections_app.documents.services import change_state, ingest_text
from collections_app.errors import ServiceError
from collections_app.index.stores import open_store
from collections_app.index.swap import ensure_serving
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IndexVersion, Operation, Upload
from collections_app.uploads.services import submit_uploads
from evaluation_app.golden.sets import keep_version
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.types import RetrievePlan
from retrieval_app.models import SavedPlan
from retrieval_app.plans.services import save_plan
from tests.exports import export_to_file
from tests.fakes.openai_server import OpenAIServer
from tests.refusals import refuses
from tests.security.hostile.files import sealed, with_row, with_vectors

QUESTIONS = ("krill in the sea", "tall redwood trees", "rivers flow north", "where do whales sing", "nothing of this")
WORDS = (
    "whale", "krill", "song", "redwood", "tree", "river", "flows", "north", "amazon", "nile", "california", "sea",
)  # fmt: skip


PLANS = (
    RetrievePlan(mode="vector", exact="always", k=20),
    RetrievePlan(mode="vector", k=20),
    RetrievePlan(mode="lexical", k=20),
    RetrievePlan(mode="hybrid", k=20),
    RetrievePlan.from_dict({"mode": "hybrid", "k": 20, "filters": {"tags_any": ["odd"]}}),
)


def text_of(number: int) -> str:
    """A few paragraphs of words that repeat from document to document."""
    lines = [" ".join(WORDS[(number * 7 + line * 3 + at) % len(WORDS)] for at in range(12)) for line in range(6)]
    return f"# Note {number}\n\n" + "\n\n".join(lines)


@pytest.fixture
def full(committed: None, embeddings: OpenAIServer) -> Collection:
    """Documents with tags and metadata, one disabled, one with earlier revisions, one of an uploaded file; a plan."""
    collection = create_collection(
        name="full",
        title="All of it",
        description="Everything",
        starters=["What?"],
        chunk_policy={"target_tokens": 20, "overlap_tokens": 4},
    )
    for number in range(6):
        ingest_text(
            collection,
            f"notes/{number:02}.md",
            text_of(number),
            title=f"Note {number}",
            tags=["even" if number % 2 == 0 else "odd"],
            metadata={"number": number, "nested": {"é": [1, 2.5, None]}},
        )
    change_state(collection, ["notes/03.md"], "disabled")
    ingest_text(
        collection, "notes/04.md", text_of(4) + "\n\nOne more line of the whale.", title="Note 4", mode="upsert"
    )
    (outcome,) = submit_uploads(collection, [SimpleUploadedFile("späte ünï.txt", "The späte text of a file.".encode())])
    assert outcome.job is not None
    run_job(outcome.job.pk)
    save_plan(collection, "wide", RetrievePlan(k=5, mode="hybrid"), is_default=True)
    golden = GoldenSet.objects.create(name="full set", collection_name="full", version=3)
    GoldenQuestion.objects.create(golden_set=golden, question="Where?", expected_doc_ids=["notes/01.md"], weight=2.0)
    keep_version(golden, reason="made")
    return collection


def search(name: str) -> list[Any]:
    """Every result of every question by every kind of search, as bytes would be compared."""
    store = open_store(get_collection(name))
    found = []
    for question in QUESTIONS:
        lists = [ragd.retrieve(question, plan, store) for plan in PLANS]
        # but for the number of the row, which is not told
        found += [[replace(candidate, chunk_id=None) for candidate in candidates] for candidates in lists]
    assert any(found)
    return found


ROWS = "SELECT to_jsonb(t) - 'id' - 'collection_id' FROM {table} t WHERE collection_id = %s ORDER BY {order}"


def stored(name: str) -> dict[str, Any]:
    """Everything that is stored of the chunks and in the statistics of the collection, in order."""
    collection = get_collection(name)
    chunks = f"chunks_c{collection.pk}_g{collection.index_version}"
    columns = (
        "doc_id, chunk_index, content, start_char, end_char, context, tags, metadata, token_count, revision, enabled, "
        "switched_off, embedding::text, fts::text, lexical::text"
    )
    found = {}
    for key, sql in {
        "chunks": f"SELECT {columns} FROM {chunks} ORDER BY doc_id, chunk_index",
        "stats": "SELECT serving, chunk_count, length_total, length_baked FROM chunk_stats WHERE collection_id = %s",
        "terms": "SELECT term, chunk_count FROM chunk_terms WHERE collection_id = %s AND chunk_count > 0 ORDER BY term",
        "documents": ROWS.format(table="documents", order="doc_id"),
        "revisions": ROWS.format(table="document_revisions", order="doc_id, revision"),
        "uploads": ROWS.format(table="uploads", order="doc_id"),
    }.items():
        with connection.cursor() as cursor:
            cursor.execute(sql, [collection.pk] if "%s" in sql else None)
            found[key] = cursor.fetchall()
    return found


def pack(path: Path, change: Callable[[dict[str, bytes]], None]) -> io.BytesIO:
    """The export again, with members as `change` leaves them; hashes and sizes in the manifest follow."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    return zipped(members)


def zipped(members: dict[str, bytes]) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    made.seek(0)
    return made


def nothing_left() -> bool:
    """Whether no collection and no table is there besides those that were exported."""
    names = sorted(Collection.objects.values_list("name", flat=True))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+$'")
        (tables,) = cursor.fetchone()
    return names == ["full"] and tables == 1


def test_an_import_yields_the_same_retrieval(full: Collection, tmp_path: Path, embeddings: OpenAIServer) -> None:
    update_collection(full, changes={"security": {"action": "redact", "min_score": 30}})
    before, searched = stored("full"), search("full")
    report = export_to_file(full, tmp_path / "full.zip")
    assert report["documents"] == 7 and report["chunks"] == len(before["chunks"])
    asked = len(embeddings.requests)
    answer = import_collection(tmp_path / "full.zip", name="copy")
    assert len(embeddings.requests) == asked, "no embedder is asked where vectors are there"
    assert answer["counts"] == report["counts"] and answer["counts"]["revisions"] == 1
    assert stored("copy") == before
    assert search("copy") == searched
    copy = get_collection("copy")
    assert answer["index_version_hash"] == ensure_serving(full).hash == ensure_serving(copy).hash
    assert (copy.description, copy.chunk_policy) == (full.description, full.chunk_policy)
    assert (copy.title, copy.starters) == ("All of it", ["What?"])
    assert copy.security == {"action": "redact", "min_score": 30.0}
    (upload,) = Upload.objects.filter(collection=copy)
    assert bytes(upload.content) == "The späte text of a file.".encode()
    (plan,) = SavedPlan.objects.filter(collection=copy)
    assert plan.is_default and plan.retrieve_plan.k == 5
    (question,) = GoldenQuestion.objects.filter(golden_set__collection_name="copy")
    assert (question.question, question.weight, question.golden_set.version) == ("Where?", 2.0, 3)
    (version,) = question.golden_set.versions.all()
    assert (version.version, version.reason, version.digest) == (3, "made", question.golden_set.digest)


def test_nobody_sees_an_import_before_it_is_complete_and_the_collection_goes_on_after_it(
    full: Collection, tmp_path: Path
) -> None:
    export_to_file(full, tmp_path / "full.zip")
    copies, seen = Collection.objects.live().filter(name="copy"), list[bool]()
    import_collection(tmp_path / "full.zip", name="copy", on_progress=lambda *_: seen.append(copies.exists()))
    assert len(seen) > 3 and not any(seen)
    copy = copies.get()
    outcome = ingest_text(copy, "new.md", "A new text of whales.", title="New")
    assert outcome.revision == 1
    assert ingest_text(copy, "notes/01.md", text_of(1), title="Note 1", tags=["odd"], metadata={
        "number": 1, "nested": {"é": [1, 2.5, None]}}).unchanged  # fmt: skip
    assert delete_collection(copy)["after"]["chunk_tables"] == 0
    assert get_collection("full")


def test_an_import_takes_the_place_of_its_collection_at_one_moment(full: Collection, tmp_path: Path) -> None:
    export_to_file(full, tmp_path / "full.zip")
    ingest_text(full, "later.md", "This came after the export.")
    with refuses("name_taken", "name") as refused:
        import_collection(tmp_path / "full.zip")
    assert refused.value.status == 409
    answer = import_collection(tmp_path / "full.zip", replace=True)
    assert answer["replaced"] and not Document.objects.filter(doc_id="later.md").exists()
    assert GoldenQuestion.objects.filter(golden_set__collection_name="full").count() == 1
    assert nothing_left() and get_collection("full").pk != full.pk


def test_an_export_is_one_moment_while_ingests_go_on(full: Collection, tmp_path: Path) -> None:
    before = stored("full")
    export = open_export(full)
    parts = [next(iter(export))]  # the moment is fixed when it is opened; what comes now is not in it
    ingest_text(full, "during.md", "A text that came during the export.")
    ingest_text(full, "notes/00.md", "Changed during the export.", title="Note 0")
    parts += list(export)
    (tmp_path / "full.zip").write_bytes(b"".join(parts))
    import_collection(tmp_path / "full.zip", name="copy")
    assert stored("copy") == before
    assert Operation.objects.get(kind="export").state == "succeeded"


def test_vectors_are_exact_and_readable_by_numpy(full: Collection, tmp_path: Path) -> None:
    export_to_file(full, tmp_path / "full.zip")
    with zipfile.ZipFile(tmp_path / "full.zip") as archive:
        vectors = np.load(io.BytesIO(archive.read("vectors.npy")))
        chunks = [json.loads(line) for line in archive.read("chunks.jsonl").splitlines()]
    assert vectors.dtype == np.float32 and vectors.shape == (len(chunks), 32)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT embedding::text FROM chunks WHERE collection_id = %s ORDER BY doc_id, chunk_index", [full.pk]
        )
        expected = np.array([json.loads(row[0]) for row in cursor.fetchall()], dtype=np.float32)
    assert np.array_equal(vectors, expected)
    manifest = read_manifest(tmp_path / "full.zip")
    assert manifest["members"]["chunks.jsonl"]["rows"] == len(chunks) == manifest["counts"]["chunks"]


def foreign(members: dict[str, bytes]) -> None:
    members["virus.exe"] = b"MZ"


def flipped(members: dict[str, bytes]) -> None:
    content = bytearray(members["vectors.npy"])
    content[-1] ^= 1
    members["vectors.npy"] = bytes(content)


def shorter(members: dict[str, bytes]) -> None:
    members["documents.jsonl"] = members["documents.jsonl"].split(b"\n", 1)[1]
    sealed(members)


def orphan(members: dict[str, bytes]) -> None:
    """The last chunk's document is renamed: as if its document had gone."""
    *others, last = members["chunks.jsonl"].splitlines(keepends=True)
    members["chunks.jsonl"] = b"".join(others) + json.dumps(json.loads(last) | {"doc_id": "zz"}).encode() + b"\n"
    sealed(members)


def without_manifest(members: dict[str, bytes]) -> None:
    del members["manifest.json"]


def manifest_with(**values: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        for path, value in values.items():
            target = manifest
            *parents, last = path.split("__")
            for parent in parents:
                target = target[parent]
            target[last] = value
        members["manifest.json"] = json.dumps(manifest).encode()

    return change


def torn_vectors(members: dict[str, bytes]) -> None:
    header = b"{'descr': [('a', 'b', 'c', 'd')], 'fortran_order': [].x, 'shape': (((}"
    members["vectors.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    sealed(members)


HOSTILE_TIMES = ("infinity", "-infinity", "10000-01-01T00:00:00+00:00", "0044-03-15 00:00:00+00 BC",
                 "9999-12-31T23:59:59-14:00", "20261122", 0, "2001-01-01T00:00:00")  # fmt: skip
HOSTILE_FIELDS: tuple[tuple[str, Any], ...] = (
    ("page_map", {"a": 1}), ("page_map", [[0, 5]]), ("page_map", [["a", "b", 1]]),
    ("segments", "abc"), ("segments", [[0, 1, "x", None]]),
    ("warnings", {"a": 1}), ("warnings", [1]), ("chunk_policy", [1]), ("chunk_policy", {"target_tokens": "many"}),
    ("chunk_policy_stated", "x"), ("chunk_policy_stated", {"unheard": 1}), ("metadata", [1]), ("metadata", "x"),
    ("metadata", {"a": "x" * 70_000}), ("tags", "abc"), ("tags", [None]), ("tags", ["x" * 10_000]), ("title", 7),
    ("revision", 0), ("revision", True), ("state", 1), ("source_hash", "xyz"), ("media_type", None),
)  # fmt: skip

BAD_FILES: tuple[tuple[Callable[[dict[str, bytes]], None], str], ...] = (
    (without_manifest, "no manifest.json"),
    (foreign, "virus.exe"),
    (flipped, "SHA-256 differs"),
    (shorter, "line 7 of documents.jsonl"),
    (manifest_with(format="other"), "not that of an export"),
    (manifest_with(format_version=3), "format version 3"),
    (manifest_with(spec_version="9.0"), "'9.0' of the specification"),
    (manifest_with(index_version__embed_dims=33), "the manifest was changed"),
    (manifest_with(collection__embed_dims=33), "different models"),
    (manifest_with(collection__embed_dims=True), "embed_dims must be"),
    (manifest_with(collection__retention=[1]), "no object 'retention'"),
    (manifest_with(collection__retention={"revisions": "x"}), "must be a whole number"),
    (manifest_with(members__extra={"sha256": "", "bytes": 0, "rows": 0}), "'extra'"),
    (with_row("chunks.jsonl", chunk_index=7), "without gaps"),
    (with_row("chunks.jsonl", content=""), "has no text"),
    (with_row("chunks.jsonl", content="\x00x"), "cannot be stored"),
    (orphan, "chunks of 'zz', which is no document"),
    (with_row("documents.jsonl", chunk_count=99), "not as many chunks"),
    (with_row("documents.jsonl", doc_id="../up"), "doc_id must not"),
    (with_row("documents.jsonl", unheard="of"), "do not all have the same"),
    (with_row("documents.jsonl", text=None), "cannot be stored"),
    *((with_row("documents.jsonl", **{name: value}), f"wrong {name}") for name, value in HOSTILE_FIELDS),
    *((with_row("documents.jsonl", created_at=value), "wrong created_at") for value in HOSTILE_TIMES),
    (with_row("documents.jsonl", updated_at="infinity"), "wrong updated_at"),
    (with_row("revisions.jsonl", made_at=0), "wrong made_at"),
    (with_row("revisions.jsonl", replaced_at="10000-01-01T00:00:00+00:00"), "wrong replaced_at"),
    (with_row("revisions.jsonl", chunks=[{"index": 0}]), "wrong chunks"),
    (with_row("revisions.jsonl", page_map=7), "wrong page_map"),
    (with_row("documents.jsonl", page_map=[[0, 10**9, "page 1"]]), "does not lie in a text"),
    (with_row("documents.jsonl", segments=[[5, 1, None, None]]), "does not lie in a text"),
    (with_row("documents.jsonl", size_chars=0), "size_chars is 0"),
    (with_row("sources.jsonl", created_at="infinity"), "wrong created_at"),
    (with_row("plans.jsonl", created_at="infinity"), "a time from 2000"),
    (with_row("plans.jsonl", created_at="9999-12-31T23:59:59-14:00"), "a time from 2000"),
    (with_row("golden_versions.jsonl", created_at="-infinity"), "a time from 2000"),
    (with_row("golden_questions.jsonl", thresholds=7), "thresholds: "),
    (with_row("golden_questions.jsonl", expected_doc_ids={"a": 1}), "expected_doc_ids: "),
    (with_row("chunks.jsonl", tags=[None]), "wrong tags"),
    (with_row("chunks.jsonl", metadata=[1]), "wrong metadata"),
    (with_row("chunks.jsonl", start_char=-5), "wrong start_char"),
    (with_row("chunks.jsonl", start_char=10**6, end_char=10**6 + 3), "not the slice of its document's text"),
    (with_row("chunks.jsonl", content="Something that the document does not say."), "not the slice"),
    (with_row("documents.jsonl", text="Another text.", size_chars=13), "not the slice"),
    (with_row("documents.jsonl", text="", size_chars=0), "content hash"),
    (with_row("documents.jsonl", content_hash="0" * 64), "content hash"),
    (with_row("documents.jsonl", state="gone"), "wrong state"),
    (with_vectors(lambda rows: rows * 0), "without a direction"),
    (with_vectors(lambda rows: rows * np.float32(1e-30)), "without a direction"),
    (with_vectors(lambda rows: np.array([row.tolist() for row in rows], dtype=object)), "vectors.npy"),
    (torn_vectors, "is no NumPy file"),
    (manifest_with(collection__chunk_policy={"target_tokens": "many"}), "settings cannot be kept"),
    (manifest_with(statistics__length_baked="Infinity"), "length_baked"),
    (with_row("sources.jsonl", size_bytes=10**12), "a size that sources.bin cannot hold"),
    (with_row("sources.jsonl", sha256="0" * 64), "SHA-256"),
    (with_row("plans.jsonl", plan={"k": -1}), "cannot be stored"),
)


def test_a_bad_file_is_refused_and_leaves_nothing(full: Collection, tmp_path: Path) -> None:
    export_to_file(full, tmp_path / "full.zip")
    for change, words in BAD_FILES:
        with pytest.raises(ServiceError) as refused:
            import_collection(pack(tmp_path / "full.zip", change), name="copy")
        assert refused.value.status == 422 and words in refused.value.message, words
        assert nothing_left(), words
    failed = Operation.objects.filter(kind="import", state="failed")
    assert len(failed) > 10 and all(operation.error for operation in failed)


def test_what_is_no_export_is_refused_and_a_bomb_is_not_unpacked(
    full: Collection, tmp_path: Path, settings: Any
) -> None:
    export_to_file(full, tmp_path / "full.zip")
    whole = (tmp_path / "full.zip").read_bytes()
    for content in (b"", b"no zip at all", whole[: len(whole) // 2], whole[:-30]):
        with refuses("invalid_export", "file", "ZIP"):
            import_collection(io.BytesIO(content), name="copy")
    with refuses("invalid_export", "file", "absent.zip"):
        import_collection(tmp_path / "absent.zip", name="copy")

    def swell(members: dict[str, bytes]) -> None:  # states a small size and unpacks to a large one
        members["overlays.jsonl"] = b"0" * 50_000_000

    with refuses("invalid_export", "file", "overlays.jsonl", "50000000"):
        import_collection(pack(tmp_path / "full.zip", swell), name="copy")
    settings.RAGD_IMPORT_MAX_MB = 20
    bomb = pack(tmp_path / "full.zip", lambda members: (swell(members), sealed(members)))  # type: ignore[func-returns-value]
    with refuses("too_large", "file", "20 MB"):
        import_collection(bomb, name="copy")
    settings.RAGD_IMPORT_MAX_MB = 0
    with refuses("too_large", "file", "RAGD_IMPORT_MAX_MB") as refused:
        import_collection(io.BytesIO(whole), name="copy")
    assert refused.value.status == 413
    assert nothing_left()


class Killed(BaseException):
    """Stands in for a process that is gone: nothing after it runs."""


def test_maintenance_removes_what_a_killed_import_left(
    full: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_to_file(full, tmp_path / "full.zip")

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(import_stage, "purge_collection", die)
        patch.setattr(import_stage.ImportWriter, "_weights", die)
        with pytest.raises(Killed):
            import_collection(tmp_path / "full.zip", name="copy")
    assert not nothing_left() and not Collection.objects.live().filter(name="copy").exists()
    now = timezone.now()
    assert purge_deleted(now) == 0, "an import that may still run is left alone"
    assert purge_deleted(now + import_stage.FENCE + import_stage.FENCE) == 1
    assert nothing_left()
    import_collection(tmp_path / "full.zip", name="copy")
    assert search("copy") == search("full")


def test_another_model_is_a_index_version_after_the_import(
    full: Collection, tmp_path: Path, embeddings: OpenAIServer
) -> None:
    export_to_file(full, tmp_path / "full.zip")
    embeddings.dims = 48
    answer = import_collection(tmp_path / "full.zip", name="copy", embed_model="text-embedding-3-large", embed_dims=48)
    assert answer["index_version"] == 2
    copy = get_collection("copy")
    assert copy.embed_model == full.embed_model, "it serves with the exported vectors meanwhile"
    run_job(IndexVersion.objects.get(collection=copy, number=2).jobs.get().pk)
    assert (get_collection("copy").embed_model, get_collection("copy").embed_dims) == ("text-embedding-3-large", 48)


def test_an_export_whose_reader_goes_away_leaves_nothing_running(full: Collection) -> None:
    export = open_export(full)
    next(iter(export))
    export.close()
    operation = Operation.objects.get(kind="export")
    assert operation.state == "failed" and "went away" in operation.error
    assert export.snapshot.connection.closed


def test_a_deletion_ends_an_export_that_reads(full: Collection) -> None:
    export = open_export(full)
    proof = delete_collection(full)
    assert proof["before"]["documents"] == 7 and not any(proof["after"].values())
    with pytest.raises(Exception):  # noqa: B017 (the database's word for it)
        list(export)
    assert Operation.objects.get(kind="export").state == "failed"


def test_no_more_than_three_exports_at_once(full: Collection) -> None:
    exports = [open_export(full) for _ in range(exporting.EXPORTS_AT_ONCE)]
    with refuses("too_many_exports") as refused:
        open_export(full)
    assert refused.value.status == 429
    for export in exports:
        export.close()
    open_export(full).close()
