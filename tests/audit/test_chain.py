"""The audit log is written once and chained: what is changed, taken out, moved or cut off shows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from collections_app.audit.services import (
    Anchor,
    as_ranges,
    is_covered,
    link_hash,
    read_head,
    record_event,
    verify_chain,
)
from collections_app.models import AuditEvent, AuditHead, AuditLink
from tests.simultaneous import call_together

pytestmark = pytest.mark.django_db(transaction=True)
TAMPER = "SET session_replication_role = replica"  # a superuser of the database can do this
HONEST = "SET session_replication_role = origin"


def write(number: int) -> list[AuditEvent]:
    return [record_event(None, "test.change", f"change {index}", before={"n": index}) for index in range(number)]


def tamper(*statements: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(TAMPER)
        for statement in statements:
            cursor.execute(statement)
        cursor.execute(HONEST)


def test_events_are_chained_at_the_commit_without_a_gap() -> None:
    with transaction.atomic():
        write(3)
        assert AuditLink.objects.count() == 0
    with pytest.raises(RuntimeError), transaction.atomic():
        write(2)
        raise RuntimeError
    write(1)
    links = list(AuditLink.objects.order_by("position").select_related("event"))
    assert [link.position for link in links] == [1, 2, 3, 4]
    previous = "0" * 64
    for link in links:
        assert link.prev_hash == previous
        assert link.hash == link_hash(link.position or 0, previous, link.event.digest)
        previous = link.hash
    assert AuditHead.objects.get().hash == previous
    verdict = verify_chain()
    assert verdict.is_whole and verdict.checked == 4 and verdict.head == Anchor(4, previous)


def test_an_empty_log_is_whole() -> None:
    assert verify_chain().as_dict() | {"head": None} == {
        "whole": True, "checked": 0, "problem": "", "position": None, "event": None, "details": "", "head": None,
    }  # fmt: skip


@pytest.mark.parametrize("table", ["audit_events", "audit_links"])
@pytest.mark.parametrize(
    "statement",
    ["UPDATE {} SET {} = {}", "DELETE FROM {}", "TRUNCATE {} CASCADE"],
    ids=["update", "delete", "truncate"],
)
def test_the_database_refuses_to_change_rows(table: str, statement: str) -> None:
    write(2)
    column = "message" if table == "audit_events" else "hash"
    with pytest.raises(DatabaseError, match="written once"), connection.cursor() as cursor:
        cursor.execute(statement.format(table, column, "'x'"))
    assert verify_chain().is_whole


def test_an_erasure_may_empty_texts_and_nothing_else() -> None:
    event = write(1)[0]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ragd.audit_erasure = 'on'")
        cursor.execute("UPDATE audit_events SET message = '', what_salt = NULL WHERE id = %s", [event.pk])
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ragd.audit_erasure = 'on'")
        cursor.execute("UPDATE audit_events SET action = 'other', what_salt = NULL WHERE id = %s", [event.pk])
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL ragd.audit_erasure = 'on'")
        cursor.execute("DELETE FROM audit_events")


@pytest.mark.parametrize(
    ("statements", "problem", "position"),
    [
        (["UPDATE audit_events SET message = 'something else' WHERE id = {second}"], "changed", 2),
        (["UPDATE audit_events SET actor_name = 'mallory' WHERE id = {second}"], "changed", 2),
        (["UPDATE audit_events SET action = 'test.nothing' WHERE id = {second}"], "changed", 2),
        (["UPDATE audit_events SET at = at - interval '1 day' WHERE id = {second}"], "changed", 2),
        (["UPDATE audit_events SET before = '{{}}' WHERE id = {second}"], "changed", 2),
        (["UPDATE audit_events SET what_salt = NULL, message = '' WHERE id = {second}"], "erased", 2),
        (["DELETE FROM audit_events WHERE id = {second}"], "missing", 2),
        (["DELETE FROM audit_links WHERE position = 2", "DELETE FROM audit_events WHERE id = {second}"], "missing", 2),
        (["DELETE FROM audit_links WHERE position = 1", "DELETE FROM audit_events WHERE id = {first}"], "missing", 1),
        (
            [
                "UPDATE audit_links SET position = -1 WHERE position = 2",
                "UPDATE audit_links SET position = 2 WHERE position = 3",
                "UPDATE audit_links SET position = 3 WHERE position = -1",
            ],
            "reordered",
            2,
        ),
        (["DELETE FROM audit_links WHERE position = 4", "DELETE FROM audit_events WHERE id = {last}"], "truncated", 4),
        (["DELETE FROM audit_links WHERE position = 4"], "truncated", 4),
    ],
)
def test_the_first_bad_row_is_named(statements: list[str], problem: str, position: int) -> None:
    events = write(4)
    places = {"first": events[0].pk, "second": events[1].pk, "last": events[3].pk}
    tamper(*(statement.format(**places) for statement in statements))
    verdict = verify_chain()
    assert (verdict.problem, verdict.position) == (problem, position)
    assert verdict.checked == position - 1
    if problem == "changed":
        assert verdict.event == events[position - 1].pk


def test_an_event_outside_of_the_chain_shows() -> None:
    write(2)
    with connection.cursor() as cursor:
        cursor.execute(TAMPER)
        loose = record_event(None, "test.change", "slipped in")
        cursor.execute(HONEST)
    verdict = verify_chain()
    assert (verdict.problem, verdict.event) == ("unlinked", loose.pk)


def test_an_anchor_shows_a_tail_that_was_cut_off_with_its_head() -> None:
    write(4)
    anchor = read_head()
    tamper(
        "DELETE FROM audit_events WHERE id IN (SELECT event_id FROM audit_links WHERE position > 2)",
        "DELETE FROM audit_links WHERE position > 2",
        "UPDATE audit_head SET position = 2, hash = (SELECT hash FROM audit_links WHERE position = 2)",
    )
    assert verify_chain().is_whole, "the database alone cannot tell"
    verdict = verify_chain(anchor)
    assert (verdict.problem, verdict.position) == ("truncated", 3)
    write(3)
    verdict = verify_chain(anchor)
    assert (verdict.problem, verdict.position) == ("changed", 4), "the tail was written anew"


def test_many_writers_at_once_make_one_chain() -> None:
    def work() -> None:
        for _ in range(10):
            with transaction.atomic():
                write(2)

    call_together(*[work] * 6)
    verdict = verify_chain()
    assert verdict.is_whole and verdict.checked == 120, verdict
    assert list(AuditLink.objects.order_by("position").values_list("position", flat=True)) == list(range(1, 121))


def test_the_end_of_the_chain_is_held_after_every_other_check_of_the_commit() -> None:
    """Else this one, which holds the end, would wait for the collection, and its holder for the end."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE audit_order (id int PRIMARY KEY)")
        cursor.execute(
            "CREATE FUNCTION audit_order_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO audit_seen SELECT count(position) FROM audit_links; RETURN NULL; END $$"
        )
        cursor.execute("CREATE TABLE audit_seen (linked int)")
        cursor.execute(
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON audit_order DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION audit_order_seen()"
        )
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            write(1)
            cursor.execute("INSERT INTO audit_order VALUES (1)")
        with connection.cursor() as cursor:
            cursor.execute("SELECT linked FROM audit_seen")
            assert cursor.fetchall() == [(0,)]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE audit_order, audit_seen; DROP FUNCTION audit_order_seen()")
    assert verify_chain().is_whole


@pytest.mark.parametrize(
    "value",
    [1.0, 1e21, 1e-7, 0.1, float("nan"), "\x00", "\ud800", {"b": [1.5, None, True]}, {3, 1, 2}, "ä" * 600, [[]]],
    ids=repr,
)
def test_any_value_reads_back_as_it_was_hashed(value: Any) -> None:
    event = record_event(None, "test.change", "a\x00b\ud800", before={"value": value}, after={"x": value})
    assert verify_chain().is_whole, AuditEvent.objects.get(pk=event.pk).before


def test_secrets_and_texts_are_not_kept() -> None:
    record_event(
        None, "test.change", "", before={"password": "hunter2", "text": "the whole text", "deep": {"key": "k9"}}
    )
    kept = AuditEvent.objects.get().before
    assert kept["password"] == "***" and kept["deep"] == {"key": "***"}
    assert kept["text"]["chars"] == 14 and len(kept["text"]["sha256"]) == 64


def test_ranges_of_ids() -> None:
    assert as_ranges([5, 1, 2, 3]) == [[1, 3], [5, 5]] and as_ranges([]) == []
    assert is_covered(2, [[1, 3]]) and not is_covered(4, [[1, 3], [5, 5]])


def test_nothing_is_held_before_the_commit() -> None:
    """Events written early in a transaction hold nothing until it commits."""
    with transaction.atomic():
        write(1)
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks WHERE relation = 'audit_head'::regclass AND pid = pg_backend_pid()"
            )
            assert cursor.fetchone() == (0,)
