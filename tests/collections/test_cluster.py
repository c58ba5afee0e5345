"""Evening out nodes, and one PostgreSQL that is no cluster."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from django.core.management import call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from collections_app.access.context import using_access
from collections_app.access.services import access_of_user
from collections_app.errors import ServiceError
from collections_app.index.cluster import TELL, Move, Node, Shard, plan_moves, read_cluster, rebalance, recover
from evaluation_app.telemetry.store.span_store import SELECT_PARTITIONS
from ragd.errors import RagdError
from ragd_site.observability.tracing import connect
from tests.web.pages import has


def node(group: int, **values: bool) -> Node:
    return replace(Node(group, f"node{group}", 5432, is_active=True, takes_shards=group > 0, answers=True), **values)  # type: ignore[arg-type]


NODES = [node(group) for group in range(4)]


def after(shards: list[Shard], moves: list[Move]) -> dict[int, Shard]:
    """Where the shards are then; each move begins where the shard is."""
    now = {shard.shard_id: shard for shard in shards}
    for move in moves:
        assert now[move.shard.shard_id].group == move.source.group != move.target.group
        now[move.shard.shard_id] = replace(now[move.shard.shard_id], group=move.target.group)
    return now


def test_a_new_node_gets_its_share() -> None:
    shards = [Shard(number, "chunks_c1_g1", 1 + number % 2, 100) for number in range(6)]
    shards += [Shard(10 + number, f"chunks_c{number}_g1", 1, 1000) for number in range(2, 5)]
    now = after(shards, plan_moves(shards, NODES))
    spread = Counter(shard.group for shard in now.values() if shard.table == "chunks_c1_g1")
    whole = Counter(shard.group for shard in now.values() if shard.table != "chunks_c1_g1")
    assert dict(spread) == dict(whole) | dict.fromkeys((1, 2, 3), 2) and set(whole.values()) == {1}


def test_nodes_that_are_gone_or_take_none_neither_give_nor_get() -> None:
    shards = [Shard(number, f"chunks_c{number}_g1", 1, 100) for number in range(4)]
    assert plan_moves(shards, [node(0), node(1)]) == []
    assert plan_moves(shards, [node(0), node(1), node(2, answers=False)]) == []
    assert plan_moves(shards, [node(0), node(1, answers=False), node(2), node(3)]) == []
    targets = {
        move.target.group for move in plan_moves(shards, [node(0), node(1), node(2, takes_shards=False), node(3)])
    }
    assert targets == {3}


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(0, 1000) | st.none()), max_size=12))
def test_the_moves_end_and_leave_nothing_to_move(made: list[tuple[int, int, int | None]]) -> None:
    shards = [Shard(number, f"chunks_c{table}_g1", group, size) for number, (table, group, size) in enumerate(made)]
    moves = plan_moves(shards, NODES)
    now = after(shards, moves)
    assert len(moves) <= 3 * len(shards) and plan_moves(now.values(), NODES) == []
    assert plan_moves(reversed(shards), NODES) == moves, "the same in any order"


@pytest.mark.django_db
def test_one_postgresql_says_so(admin_client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert read_cluster().version == ""
    page = admin_client.get("/operations/?view=cluster")
    assert page.status_code == 200 and has(page, ".empty-state") and not has(page, "[name=do]")
    for refused in (lambda: rebalance(None), lambda: recover(None)):
        with pytest.raises(ServiceError) as told:
            refused()
        assert (told.value.type, told.value.status) == ("no_cluster", 409)
    assert admin_client.post("/operations/?view=cluster", {"do": "rebalance"}).status_code == 302
    call_command("ragd", "status", "--cluster", "--json")
    assert '"citus": null' in capsys.readouterr().out


@pytest.mark.django_db
def test_only_administrators_of_the_server_see_the_nodes(client: Client, django_user_model: type) -> None:
    ada = django_user_model.objects.create_user("ada")  # type: ignore[attr-defined]
    client.force_login(ada)
    assert client.get("/operations/?view=cluster").status_code == 403
    with using_access(access_of_user(ada)), pytest.raises(RagdError):
        read_cluster()


@pytest.mark.django_db
def test_what_is_dropped_meanwhile_has_no_size() -> None:
    with connect() as other, connect() as reader:
        other.execute("CREATE TABLE chunks_c987654_g1 (id int)")
        other.execute("CREATE TABLE spans_gone PARTITION OF spans FOR VALUES FROM ('2001-01-01') TO ('2001-01-02')")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert reader.execute("SELECT 1 FROM pg_class WHERE relname = 'spans_gone'").fetchall()
        other.execute("DROP TABLE chunks_c987654_g1, spans_gone")
        assert reader.execute("SELECT 1 FROM pg_class WHERE relname = 'spans_gone'").fetchall()
        sizes = json.loads(reader.execute(TELL).fetchall()[0][0])["sizes"]
        assert None not in sizes.values() and "chunks_c987654_g1" not in sizes
        partitions = {name: size for name, _, size in reader.execute(SELECT_PARTITIONS)}
        assert None not in partitions.values() and "spans_gone" not in partitions and "spans_default" in partitions
