"""Services refuse a change that row-level security would make nothing of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from collections_app.access.context import Forbidden, using_access
from collections_app.access.services import access_of_user
from collections_app.chunks.edits import edit_chunk, set_chunk_enabled
from collections_app.collections.deletion import delete_collection
from collections_app.collections.services import update_collection
from collections_app.documents.edits import edit_document, roll_back
from collections_app.documents.services import change_state, delete_documents, reindex_documents
from collections_app.jobs.recovery import cancel_job, cancel_jobs, retry_job, retry_jobs
from evaluation_app.golden.edits import delete_questions
from evaluation_app.golden.sets import delete_set, update_set
from evaluation_app.runs.lifecycle import delete_run
from evaluation_app.runs.requests import make_baseline
from retrieval_app.plans.services import delete_plan
from tests.access.house import House


def changes(house: House) -> dict[str, list[Callable[[], Any]]]:
    """By the permission that they need."""
    own, place = house.own.collection, house.own
    doc_id = f"{place.word}.md"
    return {
        "write": [
            lambda: update_collection(own, changes={"description": "x"}),
            lambda: delete_documents(own, [doc_id]),
            lambda: change_state(own, [doc_id], "disabled"),
            lambda: reindex_documents(own, [doc_id]),
            lambda: change_state(own, [doc_id], "archived"),
            lambda: edit_document(own, doc_id, {"title": "x"}),
            lambda: roll_back(own, doc_id, 1),
            lambda: edit_chunk(own, doc_id, 0, "x"),
            lambda: set_chunk_enabled(own, doc_id, 0, enabled=False),
            lambda: cancel_job(place.job),
            lambda: retry_job(place.job),
            lambda: retry_jobs(own),
            lambda: cancel_jobs(own),
            lambda: delete_plan(own, "x"),
        ],
        "evaluate": [
            lambda: update_set(place.golden_set, description="x"),
            lambda: delete_questions(place.golden_set, [place.question.pk]),
            lambda: delete_set(place.golden_set),
            lambda: make_baseline(place.runs[0]),
            lambda: delete_run(place.runs[0], None),
        ],
        "administer": [lambda: update_collection(own, changes={"open_role": "viewer"}), lambda: delete_collection(own)],
    }


LACKS = {
    "viewer": ("write", "evaluate", "administer"),
    "asker": ("write", "evaluate", "administer"),
    "curator": ("evaluate", "administer"),
    "evaluator": ("write", "administer"),
}


def test_a_refused_change_is_never_silently_nothing(house: House) -> None:
    for name, lacking in LACKS.items():
        with using_access(access_of_user(house.people[name])):
            for permission in lacking:
                for number, change in enumerate(changes(house)[permission]):
                    with pytest.raises(Forbidden):
                        change()
                        pytest.fail(f"{name} {permission} {number}")
