"""What a collection does in its life, over DATABASE_URL: prints JSON, the same for each placement.

Run: python -m tests.cluster.flow PLACEMENT [PLACEMENT ...]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
django.setup()

# the models are there only when Django is set up
from django.conf import settings  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.db import transaction  # noqa: E402

from collections_app.access.context import SYSTEM, using_access  # noqa: E402
from collections_app.access.document_access import set_access  # noqa: E402
from collections_app.access.permissions import Role  # noqa: E402
from collections_app.access.services import access_of_user  # noqa: E402
from collections_app.chunks.edits import edit_chunk, set_chunk_enabled  # noqa: E402
from collections_app.chunks.outliers import find_outliers, scan_duplicates  # noqa: E402
from collections_app.collections.import_stage import import_collection  # noqa: E402
from collections_app.collections.invariants import check_invariants  # noqa: E402
from collections_app.collections.services import create_collection  # noqa: E402
from collections_app.documents.services import change_state, ingest_text, restore_documents, trash_documents  # noqa: E402  # noqa: E402
from collections_app.index.services import start_index_version  # noqa: E402
from collections_app.index.stores import open_store  # noqa: E402
from collections_app.models import Chunk, Collection, IndexVersion, TrashedDocument  # noqa: E402
from retrieval_app.plans.services import build_plan  # noqa: E402
from retrieval_app.search.query_pipeline import QueryRequest, search  # noqa: E402
from tests.exports import export_to_file  # noqa: E402

settings.CELERY_TASK_ALWAYS_EAGER = True
ANIMALS = ("heron", "otter", "badger", "falcon", "salmon", "beetle", "lizard", "marten")
QUESTIONS = ("Where does the otter sleep?", "falcon nest", "what eats a beetle", "number 17")


def text_of(number: int) -> str:
    animal, other = ANIMALS[number % 8], ANIMALS[(number * 3 + 1) % 8]
    parts = [
        f"# The {animal}, number {number}",
        f"The {animal} eats the {other}.",
        "## Nest",
        f"It sleeps near {number} trees.",
    ]
    return "\n\n".join(parts)


def rankings(collection: Collection) -> dict[str, Any]:
    """By mode and question: the best keys with their scores, exact and through filters."""
    found = {}
    for mode in ("vector", "lexical", "hybrid"):
        for question in QUESTIONS:
            for tags in ((), ("even",)):
                plan = build_plan(collection, mode=mode, exact="always", tags_any=list(tags))
                run = search(QueryRequest(collection, question, plan, "api"))
                rows = [[row["doc_id"], row["chunk_index"], row["score"]] for row in run.results]
                found[f"{mode} {question} {tags}"] = rows
    return found


def live(placement: str) -> dict[str, Any]:
    """What is seen on the way. Numbers and names of the collection itself are left out."""
    seen: dict[str, Any] = {}
    made = create_collection(
        name=placement,
        placement=placement,
        chunk_policy={"target_tokens": 8, "overlap_tokens": 2},
        open_role=Role.ASKER,
    )
    for number in range(40):
        ingest_text(made, f"d{number}", text_of(number), tags=["even" if number % 2 == 0 else "odd"])
    seen["written"] = rankings(made)
    ingest_text(made, "d3", "# Salmon\n\nThe salmon swims.")
    change_state(made, ["d4", "d5"], "disabled")
    edit_chunk(made, "d6", 0, "The lizard sleeps on a wall.")
    set_chunk_enabled(made, "d7", 0, enabled=False)
    gone = trash_documents(made, ["d8", "d9"])
    seen["trashed"] = gone
    seen["changed"] = rankings(made)
    restore_documents(made, list(TrashedDocument.objects.filter(collection=made).values_list("pk", flat=True)))
    made.refresh_from_db()
    start_index_version(made, {"chunk_policy": {"target_tokens": 16, "overlap_tokens": 4}})
    made.refresh_from_db()
    seen["index_version"] = [
        made.index_version,
        sorted(IndexVersion.objects.filter(collection=made).values_list("number", "state")),
    ]
    seen["rebuilt"] = rankings(made)
    seen["check"] = check_invariants(made).report["findings"]
    seen["duplicates"] = scan_duplicates(made).findings
    found = find_outliers(made)
    assert found is not None
    seen["outliers"] = [found.counts.by_flag, [(row.doc_id, row.chunk_index, row.flags) for row in found.rows]]
    ada = User.objects.create_user(f"ada-{placement}")
    set_access(made, ["d0", "d1"], users=[ada.pk])
    set_access(made, ["d2"])
    for name, user in (("ada", ada), ("bob", User.objects.create_user(f"bob-{placement}"))):
        with using_access(access_of_user(user)):
            seen[f"read by {name}"] = sorted(set(Chunk.objects.of(made).values_list("doc_id", flat=True)))
            with transaction.atomic():
                seen[f"again by {name}"] = sorted(set(Chunk.objects.of(made).values_list("doc_id", flat=True)))
            seen[f"found by {name}"] = rankings(made)
    with tempfile.TemporaryDirectory() as folder:
        export_to_file(made, Path(folder) / "export.tar")
        import_collection(Path(folder) / "export.tar", name=f"{placement}-copy")
    seen["copy"] = rankings(Collection.objects.get(name=f"{placement}-copy"))
    seen["statistics"] = {name: value for name, value in open_store(made).statistics().items() if name != "bytes"}
    return seen


if __name__ == "__main__":
    with using_access(SYSTEM):
        print(json.dumps({placement: live(placement) for placement in sys.argv[1:]}))
