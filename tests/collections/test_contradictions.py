"""Contradictions: rules over two sentences, the scan as a job, its page, and who sees a pair."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from collections_app.access_context import using_access
from collections_app.domain.claims import Claim, find_disagreements, read_claims
from collections_app.domain.permissions import Role
from collections_app.errors import ServiceError
from collections_app.models import Collection, Contradiction, Operation, RoleGrant
from collections_app.services.collections.contradictions import (
    dismiss_contradiction,
    estimate_scan,
    list_contradictions,
    request_scan,
)
from collections_app.services.documents.documents import ingest_text
from collections_app.services.governance.access import access_of_user
from collections_app.services.governance.document_access import set_access
from collections_app.tasks import run_operation
from tests.retrieval.corpus import make_collection

FILLER = "The canteen serves soup on Monday. A lift leads to the roof terrace. Bicycles stand behind the old hall."


def claims(*texts: str) -> list[Claim]:
    filler = [claim for number in range(4) for claim in read_claims((f"z{number}", 0), FILLER)]
    return filler + [claim for number, text in enumerate(texts) for claim in read_claims((f"d{number}", 0), text)]


@pytest.mark.parametrize(
    ("first", "second", "kind", "said"),
    [
        ("A parking permit is valid for 30 days.", "Each parking permit is valid for 14 days.", "number",
         ("30 days", "14 days")),
        ("The tank holds 1,000 litres of oil.", "The oil tank holds 900 litres.", "number",
         ("1,000 litres", "900 litres")),
        ("The main hall seats forty guests at 12 tables.", "At nine tables the main hall seats forty guests.", "number",
         ("12 tables", "nine tables")),
        ("The annual report is due on 3 May 2024.", "The annual report is due on 2024-05-04.", "date",
         ("3 May 2024", "2024-05-04")),
        ("The old tower was built in 1890.", "In 1910 the old tower was built.", "date", ("1890", "1910")),
        ("Visitors may enter the machine room.", "Visitors may not enter the machine room.", "negation", ("", "not")),
        ("Der Ausweis gilt 30 Tage im ganzen Werk.", "Der Ausweis gilt 14 Tage im ganzen Werk.", "number",
         ("30 Tage", "14 Tage")),
    ],
)  # fmt: skip
def test_sentences_that_disagree(first: str, second: str, kind: str, said: tuple[str, str]) -> None:
    (found,) = find_disagreements(claims(first, second))
    assert (found.kind, found.said, found.first.place, found.second.place) == (kind, said, ("d0", 0), ("d1", 0))
    assert 0 < found.score <= 1 and found == find_disagreements(claims(first, second))[0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The answer comes within 48 hours by mail.", "The answer comes within 2 days by mail."),
        ("The large pump moves 400 litres per minute.", "The small pump moves 500 litres per minute."),
        ("The delivery takes at least 3 days by rail.", "The delivery takes at most 5 days by rail."),
        ("The old tower was built in 1890.", "The old tower was painted in 1910."),
        ("Visitors may not enter the machine room.", "The machine room visitors may not enter."),
        ("Is the parking permit valid for 30 days?", "A parking permit is valid for 14 days."),
        ("Section 3.1 names the safety valve.", "Section 3.2 names the safety valve."),
    ],
)
def test_sentences_that_do_not(first: str, second: str) -> None:
    assert find_disagreements(claims(first, second)) == []


def test_one_document_is_not_held_against_itself() -> None:
    text = "A parking permit is valid for 30 days. Each parking permit is valid for 14 days."
    assert find_disagreements(claims(text)) == [] and find_disagreements([]) == []


@pytest.fixture
def house(db: None) -> Collection:
    collection = make_collection()
    ingest_text(collection, "rules.md", f"{FILLER} A parking permit is valid for 30 days.", title="Rules")
    ingest_text(collection, "guide.md", "Each parking permit is valid for 14 days. Ask at the gate.", title="Guide")
    ingest_text(collection, "notes.md", "Visitors may not enter the machine room.", title="Notes")
    ingest_text(collection, "poster.md", "Visitors may enter the machine room.", title="Poster")
    return collection


def scan(collection: Collection) -> Operation:
    operation = request_scan(collection)
    run_operation(str(operation.pk))
    operation.refresh_from_db()
    return operation


@pytest.mark.django_db
def test_a_scan_is_a_job_and_keeps_what_was_dismissed(house: Collection, client: Client) -> None:
    assert not estimate_scan(house).measured
    done = scan(house)
    assert done.state == "succeeded" and done.findings == 2
    assert done.report | {"seconds": 0} == {
        "chunks": 9, "claims": done.report["claims"], "found": 2, "complete": True, "seconds": 0,
    }  # fmt: skip
    rows = {row.contradiction.kind: row for row in list_contradictions(house)}
    assert {kind: [side.doc_id for side in row.sides] for kind, row in rows.items()} == {
        "number": ["guide.md", "rules.md"], "negation": ["notes.md", "poster.md"],
    }  # fmt: skip
    marked = {kind: [[part.text for part in side.parts if part.kind == "added"] for side in row.sides]
              for kind, row in rows.items()}  # fmt: skip
    assert marked == {"number": [["14 days"], ["30 days"]], "negation": [["not"], []]}
    assert "".join(part.text for part in rows["number"].sides[0].parts) == "Each parking permit is valid for 14 days."

    client.force_login(User.objects.create_superuser("root"))
    address = "/collections/house/contradictions/"
    page = client.get(address).content.decode()
    assert page.count("<article") == 2 and page.count('value="disable"') == 4 and "<mark>" in page
    pk = rows["negation"].contradiction.pk
    assert client.post(address, {"contradiction": pk}, follow=True).content.decode().count("<article") == 1
    assert client.get(f"{address}?state=dismissed").content.decode().count("<article") == 1
    ingest_text(house, "guide.md", "Each parking permit is valid for 60 days. Ask at the gate.", title="Guide")
    stale = [row for row in list_contradictions(house) if row.contradiction.kind == "number"]
    assert [side.parts for side in stale[0].sides] == [[], []]
    scan(house)
    assert {(row.kind, row.dismissed) for row in Contradiction.objects.all()} == {("number", False), ("negation", True)}
    client.post(address, {"do": "scan"})
    assert Operation.objects.filter(kind="contradictions").count() == 3
    with pytest.raises(ServiceError):
        dismiss_contradiction(house, 0)


@pytest.mark.django_db
def test_a_pair_is_shown_to_who_may_read_both_documents(house: Collection) -> None:
    scan(house)
    ada = User.objects.create_user("ada")
    RoleGrant.objects.create(user=ada, collection_id=house.pk, role=Role.VIEWER)

    def seen(**values: Any) -> list[str]:
        with using_access(access_of_user(ada)):
            return [row.contradiction.kind for row in list_contradictions(house, **values)]

    assert sorted(seen()) == ["negation", "number"]
    set_access(house, ["poster.md"], users=[])
    assert seen() == ["number"] and seen(kind="negation") == []
    assert len(list_contradictions(house)) == 2
