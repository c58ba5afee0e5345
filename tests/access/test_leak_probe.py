"""The leak probe over a seeded corpus: nothing leaks, nothing is missing, and a switched off row security shows."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client

from collections_app.access.document_access import set_access, widen
from collections_app.access.permissions import Role
from collections_app.models import Collection, RoleGrant
from ragd.store.store import execute
from ragd_site.operations.leak_probe import CHANNELS, probe, what_may_be_read
from retrieval_app.models import QueryRun
from tests.access.corpus import Corpus, make_corpus
from tests.web.pages import client_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def corpus() -> Corpus:
    return make_corpus(people=8, groups=4, documents=60, seed=3)


def test_nothing_leaks_and_nothing_is_missing_on_any_channel(corpus: Corpus) -> None:
    report = probe(corpus.people[0], corpus.collections, rounds=1)
    assert report.leaks == [] and report.missing == []
    assert report.channels.keys() == CHANNELS.keys()
    assert report.hidden and report.readable
    assert not QueryRun.objects.exists(), "those that the probe made are gone"


def test_a_leak_is_found_where_row_security_does_not_bind(corpus: Corpus) -> None:
    """The truth is worked out apart from row security: switched off, every searching channel leaks."""
    for table in ("documents", *corpus.tables):
        execute(connection, f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
    corpus.let_all_read()
    channels = {name: CHANNELS[name] for name in ("API document", "page document", "MCP document", "page ask")}
    try:
        report = probe(corpus.people[0], corpus.collections[:1], rounds=1, channels=channels)
    finally:  # the table outlives this test
        execute(connection, "ALTER TABLE documents ENABLE ROW LEVEL SECURITY")
    leaking = {leak.channel for leak in report.leaks}
    assert {"API document", "page document", "MCP document"} <= leaking


def test_the_truth_follows_roles_groups_and_lists(corpus: Corpus) -> None:
    user, collection = corpus.people[0], corpus.collections[0]
    hidden = min(what_may_be_read(user, collection).hidden)
    set_access(collection, [hidden], users=[user.pk])
    assert hidden in what_may_be_read(user, collection).readable
    widen(collection, [hidden])
    assert hidden in what_may_be_read(user, collection).readable
    RoleGrant.objects.filter(user=user).delete()
    user.groups.clear()
    Collection.objects.filter(pk=collection.pk).update(open_role="")
    assert not what_may_be_read(user, collection).enters
    RoleGrant.objects.create(user=user, collection_id=collection.pk, role=Role.ADMINISTRATOR)
    assert what_may_be_read(user, collection).hidden == set()


def test_the_page_asks_as_the_chosen_person(corpus: Corpus, admin_client: Client) -> None:
    person, collection = corpus.people[0], corpus.collections[0]
    assert admin_client.get("/operations/?view=leak-probe").status_code == 200
    page = admin_client.post("/operations/?view=leak-probe", {"person": person.pk, "collection": collection.pk})
    report = page.context["report"]
    assert (report.person, report.passed, len(report.channels)) == (person.get_username(), True, len(CHANNELS))
    assert admin_client.post("/operations/?view=leak-probe", {"person": "0"}).status_code == 422
    other = client_of(person)
    assert other.get("/operations/?view=leak-probe").status_code == 403
