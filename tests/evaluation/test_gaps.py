"""Content gaps: what was asked and not answered, grouped, dismissed until it is asked again, and seen by whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from collections_app.access.context import using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.models import AuditEvent, Collection, RoleGrant
from evaluation_app.failures import board
from evaluation_app.reviews.labels import give_feedback
from ragd.errors import InvalidInput
from retrieval_app.models import QueryRun

pytestmark = pytest.mark.django_db
PARKING = ("Where may visitors park their cars?", "Where can visitors park a car?")


class Angles:
    """Embeds "30" as the direction of 30 degrees; what is no number, each in a dimension of its own."""

    def embed(self, texts: Any) -> list[Any]:
        vectors = np.zeros((len(texts), 2 + len(board.UNRELATED)))
        for row, text in enumerate(texts):
            if text in board.UNRELATED:
                vectors[row, 2 + board.UNRELATED.index(text)] = 1
            else:
                vectors[row, :2] = np.cos(np.radians(float(text))), np.sin(np.radians(float(text)))
        return list(vectors)


def test_a_question_joins_the_nearest_first_question_that_is_near_enough() -> None:
    embedder: Any = Angles()
    assert board.group_questions(["0", "90", "30", "60", "44", "180"], embedder) == [[0, 2, 4], [1, 3], [5]]
    assert board.group_questions(["45", "0", "90"], embedder) == [[0, 1, 2]]
    assert board.group_questions([], embedder) == []


def ask(collection: Collection, text: str, status: str = "abstained", **values: Any) -> QueryRun:
    values.setdefault("retrieved_ids", ["garden.md#0"])
    values.setdefault("results", [{"doc_id": "garden.md", "title": "Garden", "content": "The garden is open.",
                                   "chunk_index": 0, "revision": 1, "rank": 1, "context": "Garden", "metadata": {},
                                   "start": 0, "end": 19}] if values["retrieved_ids"] else [])  # fmt: skip
    return QueryRun.objects.create(
        kind="ask", collection=collection, collection_name=collection.name, query=text, status=status, channel="page",
        answer="" if status == "abstained" else "It is open.", **values,
    )  # fmt: skip


def test_gaps_are_grouped_counted_dismissed_and_come_back(house: Collection, client: Client) -> None:
    for text in (*PARKING, PARKING[0], "where may visitors  park their CARS?"):
        ask(house, text)
    ask(house, "Who repairs the violin?", "ok", retrieved_ids=[])
    ask(house, "When is the hedge cut?", "ok", evidence=0.4)
    liked = ask(house, "When is the garden open?", "ok", evidence=0.9)
    wrong = ask(house, "How deep is the cellar?", "ok", evidence=0.9)
    ask(house, "Who sings at night?", environment="evaluation")
    ask(house, "Who sang long ago?", created_at=timezone.now() - timedelta(days=60))
    root = User.objects.create_superuser("root")
    give_feedback(liked, correct=True, actor=root)
    give_feedback(wrong, correct=False, actor=root)
    found = board.find_gaps(house, days=30)
    assert [(gap.first.text, gap.count, gap.reasons) for gap in found.rows] == [
        ("where may visitors  park their CARS?", 4, [board.NO_ANSWER]),
        ("How deep is the cellar?", 1, [board.WRONG]),
        ("When is the hedge cut?", 1, [board.LOW_CONFIDENCE]),
        ("Who repairs the violin?", 1, [board.NO_RESULTS]),
    ]
    first = found.rows[0]
    assert (len(first.questions), first.nearest, found.left_out, found.problem) == (2, ("garden.md", "Garden"), 0, "")
    assert first.last_asked == max(run.created_at for run in QueryRun.objects.filter(query__icontains="visitors"))

    client.force_login(root)
    address = "/collections/house/health/?view=gaps"
    page = client.get(address).content.decode()
    assert page.count("data-row-link>") == 4 and "/collections/house/upload/" in page and "from-run" in page
    answer = client.post(address, {"question": [each.digest for each in first.questions]}, follow=True)
    assert answer.status_code == 200 and answer.content.decode().count("data-row-link>") == 3
    assert client.get(f"{address}&state=dismissed").content.decode().count("data-row-link>") == 1
    assert AuditEvent.objects.filter(message__startswith="dismissed a content gap").count() == 1
    ask(house, PARKING[1])
    assert [gap.first.text for gap in board.find_gaps(house, days=30).rows][:1] == [PARKING[1]]
    left = [each.digest for gap in board.find_gaps(house, days=30, dismissed=True).rows for each in gap.questions]
    assert len(left) == 1 and board.dismiss(house, left, dismissed=False) == 1
    assert board.find_gaps(house, days=30, dismissed=True).rows == []
    with pytest.raises(InvalidInput):
        board.dismiss(house, ["nothing"])


def test_gaps_show_the_runs_that_one_may_see(house: Collection) -> None:
    ada, eve = (User.objects.create_user(name) for name in ("ada", "eve"))
    RoleGrant.objects.create(user=ada, collection_id=house.pk, role=Role.ASKER)
    RoleGrant.objects.create(user=eve, collection_id=house.pk, role=Role.EVALUATOR)
    ask(house, "What does ada want?", user=ada)
    ask(house, "What does root want?")
    ask(house, "What is in the secret archive?", user=ada, retrieved_ids=["archive.md#0"])
    set_access(house, ["archive.md"], users=[])

    def seen(user: User) -> set[str]:
        with using_access(access_of_user(user)):
            return {each.text for gap in board.find_gaps(house, days=30).rows for each in gap.questions}

    assert seen(ada) == {"What does ada want?"}
    assert seen(eve) == {"What does ada want?", "What does root want?"}
    assert "What is in the secret archive?" in {gap.first.text for gap in board.find_gaps(house, days=30).rows}
