"""Row-level security: what a bound reader sees of every table, on every path of retrieval, and after changes."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass

import pytest
from django.contrib.auth.models import Group, User
from django.db import DataError, ProgrammingError, connection, transaction
from psycopg.errors import InsufficientPrivilege

import ragd
from collections_app.access.context import NOBODY, SYSTEM, Access, using_access
from collections_app.access.document_access import set_access, widen
from collections_app.access.permissions import Permission, Role
from collections_app.access.services import access_of_user
from collections_app.models import Chunk, Collection, Document, DocumentRevision, RoleGrant
from ragd.search.retrieval import retrieve_detailed
from ragd.store.indexing import delete_document_chunks, index
from ragd.store.postings import build_postings
from ragd.store.store import fetch_all
from ragd.store.tables import create_collection
from ragd.types import RetrievePlan
from ragd_site.postgresql.base import DatabaseWrapper
from ragd_site.postgresql.row_security import OPEN, POLICIES, protect
from tests.builders import WordEmbedder, make_chunks

pytestmark = pytest.mark.django_db
WORDS = "heron marsh reed water bird"


@dataclass
class Marsh:
    collection: Collection
    ada: User
    bob: User
    rangers: Group

    def store(self) -> ragd.Store:
        return ragd.Store(connection, self.collection.pk, WordEmbedder(), exact_threshold=5)


@pytest.fixture(scope="module")
def module_marsh(module_db: None) -> Marsh:
    """Ten documents that all answer the same words; three narrowed: to ada, to the rangers, to administrators."""
    pk = create_collection(connection, name="marsh", embed_model="words", embed_dims=32)
    Collection.objects.filter(pk=pk).update(open_role=Role.ASKER)
    for number in range(10):
        Document.objects.create(
            collection_id=pk, doc_id=f"d{number}", title=f"heron {number}", text=f"{WORDS} {number}"
        )
    store = ragd.Store(connection, pk, WordEmbedder())
    index([chunk for n in range(10) for chunk in make_chunks(f"d{n}", f"{WORDS} {n}", f"{WORDS} nest {n}")], store)
    ada, bob = (User.objects.create_user(name) for name in ("ada", "bob"))
    rangers = Group.objects.create(name="rangers")
    bob.groups.add(rangers)
    made = Marsh(Collection.objects.get(pk=pk), ada, bob, rangers)
    set_access(made.collection, ["d1"], users=[ada.pk])
    set_access(made.collection, ["d2"], groups=[rangers.pk])
    set_access(made.collection, ["d3"])
    return made


@pytest.fixture
def marsh(module_marsh: Marsh) -> Marsh:
    return deepcopy(module_marsh)


PUBLIC = {f"d{number}" for number in (0, 4, 5, 6, 7, 8, 9)}


def documents(access: Access) -> set[str]:
    with using_access(access):
        return set(Document.objects.values_list("doc_id", flat=True))


def test_documents_chunks_and_counts_are_those_that_the_reader_may_read(marsh: Marsh) -> None:
    ada, bob = access_of_user(marsh.ada), access_of_user(marsh.bob)
    assert documents(ada) == PUBLIC | {"d1"}
    assert documents(bob) == PUBLIC | {"d2"}
    assert documents(NOBODY) == set()
    with using_access(ada):
        assert set(Chunk.objects.values_list("doc_id", flat=True)) == PUBLIC | {"d1"}
        table = f"chunks_c{marsh.collection.pk}_g1"
        assert {row[0] for row in fetch_all(connection, f"SELECT DISTINCT doc_id FROM {table}")} == PUBLIC | {"d1"}
    with using_access(NOBODY):
        assert fetch_all(connection, f"SELECT count(*) FROM {table}") == [(0,)]
        assert Collection.objects.count() == 0


@pytest.mark.parametrize("mode", ["vector", "lexical", "hybrid"])
@pytest.mark.parametrize("exact", ["always", "never", "auto"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_pool_of_every_path_is_filled_from_what_the_reader_may_read(
    marsh: Marsh, mode: str, exact: str, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = marsh.store()
    if exact != "always":
        store.build_vector_index()
    if packed:
        monkeypatch.setattr("ragd.search.lexical_search.POSTINGS_MIN", 1)
        build_postings(store)
    plan = RetrievePlan(mode=mode, exact=exact, k=16, candidate_pool=16)  # type: ignore[arg-type]
    for user, extra in ((marsh.ada, "d1"), (marsh.bob, "d2")):
        with using_access(access_of_user(user)), transaction.atomic():
            found = retrieve_detailed(WORDS, plan, marsh.store())
        assert {each.doc_id for each in found.candidates} == PUBLIC | {extra}
        assert len(found.candidates) == 16
        for listed in found.lists.values():
            assert {each.doc_id for each in listed} <= PUBLIC | {extra}
    with transaction.atomic():
        assert len(retrieve_detailed(WORDS, RetrievePlan(mode=mode, exact=exact, k=20), marsh.store()).candidates) == 20  # type: ignore[arg-type]


def test_a_change_of_the_list_reaches_chunks_that_are_there_and_those_that_come(marsh: Marsh) -> None:
    set_access(marsh.collection, ["d4"], users=[marsh.bob.pk])
    index(make_chunks("d4", "other words", "and more of them", "and more"), marsh.store())
    with using_access(access_of_user(marsh.ada)):
        assert not Chunk.objects.filter(doc_id="d4").exists()
        assert not Document.objects.filter(doc_id="d4").exists()
    with using_access(access_of_user(marsh.bob)):
        assert Chunk.objects.filter(doc_id="d4").count() == 3
    widen(marsh.collection, ["d4"])
    with using_access(access_of_user(marsh.ada)):
        assert Chunk.objects.filter(doc_id="d4").count() == 3
    marsh.bob.groups.clear()
    assert documents(access_of_user(marsh.bob)) == PUBLIC


def test_revisions_of_a_deleted_document_stay_as_narrow_as_it_was(marsh: Marsh) -> None:
    delete_document_chunks(["d1"], marsh.store())
    Document.objects.filter(doc_id="d1").delete()
    DocumentRevision.objects.create(
        collection=marsh.collection, doc_id="d1", revision=1, text="secret", made_at=marsh.collection.created_at
    )
    with using_access(access_of_user(marsh.bob)):
        assert not DocumentRevision.objects.exists()
    with using_access(access_of_user(marsh.ada)):
        assert DocumentRevision.objects.get().text == "secret"
    Document.objects.create(collection=marsh.collection, doc_id="d1", text="again")
    assert documents(access_of_user(marsh.bob)) == PUBLIC | {"d2"}


def test_administrators_of_a_collection_read_every_document(marsh: Marsh) -> None:
    RoleGrant.objects.create(user=marsh.bob, collection_id=marsh.collection.pk, role=Role.ADMINISTRATOR)
    assert documents(access_of_user(marsh.bob)) == PUBLIC | {"d1", "d2", "d3"}


def test_the_bound_role_cannot_write_what_its_permissions_do_not_allow(marsh: Marsh) -> None:
    with using_access(access_of_user(marsh.ada)), transaction.atomic():
        assert Document.objects.filter(doc_id="d0").update(title="changed") == 0
        with pytest.raises(ProgrammingError) as caught, transaction.atomic():
            Document.objects.create(collection=marsh.collection, doc_id="new")
        assert isinstance(caught.value.__cause__, InsufficientPrivilege)
        assert fetch_all(connection, "SELECT * FROM document_access") == []
    RoleGrant.objects.create(user=marsh.ada, collection_id=marsh.collection.pk, role=Role.CURATOR)
    with using_access(access_of_user(marsh.ada)):
        assert Document.objects.filter(doc_id__in=["d0", "d2"]).update(title="changed") == 1


def test_access_goes_back_after_a_rollback_and_a_block(marsh: Marsh) -> None:
    ada = access_of_user(marsh.ada)
    with pytest.raises(RuntimeError), using_access(ada), transaction.atomic():
        assert Document.objects.count() == 8
        raise RuntimeError
    assert Document.objects.count() == 10
    with using_access(ada):
        assert Document.objects.count() == 8
    assert Document.objects.count() == 10


def test_a_savepoint_takes_back_what_failed_under_another_access(marsh: Marsh) -> None:
    with pytest.raises(DataError), transaction.atomic(), using_access(access_of_user(marsh.ada)):
        connection.cursor().execute("SELECT 1 / 0")
    assert Document.objects.count() == 10


def test_scopes_and_limits_cut_an_access_down(marsh: Marsh) -> None:
    access = access_of_user(marsh.ada)
    pk = marsh.collection.pk
    assert access.may(Permission.ASK, pk) and not access.within(frozenset({Permission.READ})).may(Permission.ASK, pk)
    assert access.inside([]).collections == {}
    assert documents(access.inside([])) == set()


def test_every_table_has_a_policy_or_is_stated_to_hold_no_text() -> None:
    """Those of neither list are closed to the bound role: it has no right on them."""
    rows = fetch_all(
        connection,
        "SELECT c.relname, c.relrowsecurity, has_table_privilege('ragd_reader', c.oid, 'SELECT') FROM pg_class c"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT starts_with(c.relname, 'chunks_c')",  # of the collection of this module
    )
    for table, is_secured, is_readable in rows:
        assert is_secured == (table in POLICIES), table
        assert is_readable == (table in POLICIES or table in OPEN), table
    assert not set(POLICIES) & set(OPEN)
    protect(connection)  # may be run again


def test_no_policy_compares_a_column_with_itself() -> None:
    """As PostgreSQL reads a condition whose inner table has a column of the name that was meant for the outer one."""
    rows = fetch_all(connection, "SELECT tablename, policyname, concat(qual, ' ', with_check) FROM pg_policies")
    assert len(rows) > 100
    for table, policy, condition in rows:
        assert not re.search(r"(\b\w+\.\w+) (?:=|<=|>=|<|>) \1\b", condition), (table, policy, condition)


def test_statements_under_a_policy_may_run_in_parallel() -> None:
    """A function that is not parallel safe would keep the whole scan of a table to one process."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(qual, ' ') FROM pg_policies WHERE schemaname = current_schema()")
        (policies,) = cursor.fetchone()
        cursor.execute(
            "SELECT proname, proparallel FROM pg_proc"
            " WHERE pronamespace = current_schema()::regnamespace AND prolang <> (SELECT oid FROM pg_language"
            " WHERE lanname = 'c')"
        )
        called = {name: kind for name, kind in cursor.fetchall() if re.search(rf"\b{re.escape(name)}\(", policies)}
    assert len(called) > 5
    assert [name for name, kind in called.items() if kind != "s"] == []


def test_a_hop_reads_no_name_and_finds_no_chunk_of_a_hidden_document(marsh: Marsh) -> None:
    """d1 is narrowed to ada. The way leads from d4 to it, and from it to d5."""
    texts = {
        "d4": "The pontoon is kept by Halden Works.", "d1": "Halden Works belongs to Mira Stroem.",
        "d5": "Mira Stroem lives far away.", "d6": "Halden Works is closed on Sundays.",
    }  # fmt: skip
    index([chunk for name, text in texts.items() for chunk in make_chunks(name, text)], marsh.store())
    plan = RetrievePlan(mode="lexical", k=6, hops=3)

    def reached(user: User) -> set[str]:
        with using_access(access_of_user(user)):
            found = retrieve_detailed("Who keeps the pontoon?", plan, marsh.store())
        return {doc_id for doc_id, _ in found.links} | {link.doc_id for link in found.links.values()}

    assert reached(marsh.ada) == {"d4", "d1", "d5", "d6"}
    assert reached(marsh.bob) == {"d4", "d6"}


def test_a_pooled_connection_has_the_access_of_who_takes_it(marsh: Marsh) -> None:
    """What a transaction bound goes with its rollback, also where the pool rolls back."""
    values = deepcopy(connection.settings_dict) | {"CONN_MAX_AGE": 0}
    values["OPTIONS"] = {**values["OPTIONS"], "pool": {"min_size": 1, "max_size": 1}}
    pooled = DatabaseWrapper(values, alias="default")
    ada, bob = access_of_user(marsh.ada), access_of_user(marsh.bob)

    def asked(access: Access) -> str:
        with using_access(access):
            ((setting,),) = fetch_all(pooled, "SELECT current_setting('ragd.access')")
        return str(setting)

    try:
        for leave in (pooled.commit, pooled.rollback, pooled.close):
            assert asked(ada) == ada.setting
            pooled.set_autocommit(False)
            assert asked(bob) == bob.setting
            leave()
            pooled.close()
            assert asked(bob) == bob.setting
            pooled.close()
            assert asked(SYSTEM) == ""
    finally:
        pooled.close()
        pooled.close_pool()
