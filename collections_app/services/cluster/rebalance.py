"""Evens out what the nodes of a cluster hold, shard by shard, while searches go on; ends what transactions left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import connection

from collections_app.errors import ServiceError
from collections_app.services.cluster.state import ClusterState, Node, Shard, read_cluster
from collections_app.services.governance import audit
from ragd.store.store import fetch_all

TOLERANCE = 0.1  # of the mean: a smaller difference between nodes moves nothing

MOVE = """
SELECT citus_move_shard_placement(%(shard)s, %(source)s, %(source_port)s, %(target)s, %(target_port)s,
                                  shard_transfer_mode => 'auto')
"""
RECOVER = "SELECT recover_prepared_transactions()"


@dataclass(frozen=True, slots=True)
class Move:
    """One shard from node to node. bytes: about what is copied."""

    shard: Shard
    source: Node
    target: Node

    def as_dict(self) -> dict[str, Any]:
        return {
            "table": self.shard.table, "shard": self.shard.shard_id, "from": self.source.address,
            "to": self.target.address, "bytes": self.shard.bytes,
        }  # fmt: skip


def plan_moves(shards: Iterable[Shard], nodes: Sequence[Node]) -> list[Move]:
    """Moves after which each spread index version has about as many shards on each node, and the nodes about as many
    bytes; in the order in which they are made. The same state gives the same moves.

    First versions of several shards, by count; then those of one shard, by bytes: the largest one whose move makes the
    fullest node and the emptiest more alike. Nodes that do not answer, or take no shards, neither give nor get. [] for
    fewer than two nodes.
    """
    usable = {node.group: node for node in nodes if node.answers and node.takes_shards and not node.is_coordinator}
    if len(usable) < 2:
        return []
    now = [shard for shard in sorted(shards, key=lambda each: each.shard_id) if shard.group in usable]
    moves: list[Move] = []

    def move(shard: Shard, target: int) -> None:
        moves.append(Move(shard, usable[shard.group], usable[target]))
        now[now.index(shard)] = replace(shard, group=target)

    tables: dict[str, int] = {}
    for shard in now:
        tables[shard.table] = tables.get(shard.table, 0) + 1
    for table in sorted(name for name, count in tables.items() if count > 1):
        while True:
            counts = {group: sum(each.table == table and each.group == group for each in now) for group in usable}
            fullest = max(counts, key=lambda group: (counts[group], -group))
            emptiest = min(counts, key=lambda group: (counts[group], group))
            if counts[fullest] - counts[emptiest] < 2:
                break
            move(next(each for each in now if each.table == table and each.group == fullest), emptiest)
    while True:
        sizes = {group: sum(each.bytes or 0 for each in now if each.group == group) for group in usable}
        fullest = max(sizes, key=lambda group: (sizes[group], -group))
        emptiest = min(sizes, key=lambda group: (sizes[group], group))
        gap = sizes[fullest] - sizes[emptiest]
        whole = [
            each for each in now if each.group == fullest and tables[each.table] == 1 and 0 < (each.bytes or 0) < gap
        ]
        if gap <= TOLERANCE * sum(sizes.values()) / len(sizes) or not whole:
            return moves
        move(min(whole, key=lambda each: (abs(gap - 2 * (each.bytes or 0)), each.shard_id)), emptiest)


def rebalance(actor: Any, *, is_dry: bool = False) -> list[Move]:
    """Make the moves of `plan_moves`, one after another, each whole or not at all; or only tell them.

    Raises ServiceError 409 on one PostgreSQL, and while a node does not answer.
    """
    state = _cluster()
    if state.away:
        raise ServiceError(
            f"{', '.join(node.address for node in state.away)} does not answer; start it, or remove it from the cluster"
            " (citus_remove_node), and try again",
            type="node_away",
            status=409,
        )
    moves = plan_moves(state.shards, state.nodes)
    for each in moves if not is_dry else ():
        values = {
            "shard": each.shard.shard_id, "source": each.source.name, "source_port": each.source.port,
            "target": each.target.name, "target_port": each.target.port,
        }  # fmt: skip
        fetch_all(connection, MOVE, values)
    if moves and not is_dry:
        audit.record_event(
            actor, "cluster.rebalance", f"moved {len(moves)} shards between nodes", subject_kind="cluster",
            after={"moves": [each.as_dict() for each in moves]},
        )  # fmt: skip
    return moves


def recover(actor: Any) -> int:
    """Commit or roll back what nodes prepared and heard no more of, as the coordinator decided; how many. Citus does
    the same once a minute. Raises ServiceError 409 on one PostgreSQL."""
    _cluster()
    recovered = int(fetch_all(connection, RECOVER)[0][0])
    if recovered:
        audit.record_event(actor, "cluster.recover", f"ended {recovered} prepared transactions", subject_kind="cluster")
    return recovered


def _cluster() -> ClusterState:
    state = read_cluster()
    if not state.version:
        raise ServiceError(
            "this database is one PostgreSQL, not the coordinator of a Citus cluster with nodes; docs/scaling.md says"
            " how to make one",
            type="no_cluster",
            status=409,
        )
    return state
