"""Evens out what the nodes of a cluster hold, shard by shard, while searches go on; ends what transactions left.

What the coordinator of a Citus cluster knows of its nodes, and what each node that answers says of itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db import connection

from collections_app.access.context import require
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.domain.formats import counted
from collections_app.errors import ServiceError
from collections_app.models import Collection
from ragd.store.placement import ask_nodes, count_nodes
from ragd.store.store import fetch_all

TABLE = re.compile(r"chunks_c(\d+)_g(\d+)")

HAS_CITUS = "SELECT extversion FROM pg_extension WHERE extname = 'citus'"
NODES = """
SELECT groupid, nodename, nodeport, isactive, shouldhaveshards FROM pg_dist_node
WHERE noderole = 'primary' ORDER BY groupid
"""
SHARDS = """
SELECT s.shardid, s.logicalrelid::text, p.groupid FROM pg_dist_placement p JOIN pg_dist_shard s USING (shardid)
WHERE p.shardstate = 1 ORDER BY s.shardid
"""
# What a server says of itself. Replicas: those that stream, and those that hold a slot and do not; not what carries the
# write-ahead log for a backup, and not the moves of shards, which are logical.
TELL = r"""
SELECT json_build_object(
    'sizes', (
        SELECT coalesce(json_object_agg(relname, size), '{}') FROM pg_class, pg_total_relation_size(oid) AS size
        WHERE size IS NOT NULL AND relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+(_[0-9]+)?$'), -- NULL: dropped
    'prepared', (
        SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'citus\_%' AND prepared < now() - interval '5 s'),
    'replicas', (
        SELECT coalesce(json_agg(json_build_array(name, address, state, bytes, s) ORDER BY name, address), '[]')
        FROM (
            SELECT application_name AS name, coalesce(host(client_addr), '') AS address, coalesce(state, '') AS state,
                   greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0) AS bytes,
                   CASE WHEN replay_lsn >= pg_current_wal_lsn() THEN 0 ELSE extract(epoch FROM replay_lag) END AS s
            FROM pg_stat_replication r
            WHERE r.state IS DISTINCT FROM 'backup' AND application_name <> 'pg_receivewal' AND NOT EXISTS (
                SELECT FROM pg_replication_slots l WHERE l.active_pid = r.pid AND l.slot_type = 'logical')
            UNION ALL
            SELECT slot_name, '', 'away', greatest(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0), NULL
            FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active AND NOT temporary
        ) AS copies)
)::text
"""
MOVING = """
SELECT table_name::text, shardid, sourcename, sourceport, targetname, targetport, progress, source_shard_size,
       target_shard_size
FROM get_rebalance_progress() ORDER BY shardid
"""
AWAY = "away"
PLACED = "SELECT collection_id, index_version, placement, chunk_count, serving FROM chunk_stats ORDER BY 1, 2"


@dataclass(frozen=True, slots=True)
class Replica:
    """A streaming copy of one server, as that sees it. state: as PostgreSQL names it ("streaming", "catchup"), "away"
    where it has a slot and is not connected. lag_bytes: written there and not replayed here; where it is away, kept for
    it. lag_s: how old that is, 0 without any. Both None where not known."""

    name: str
    address: str
    state: str
    lag_bytes: int | None
    lag_s: float | None

    @property
    def streams(self) -> bool:
        return self.state != AWAY


@dataclass(frozen=True, slots=True)
class Node:
    """group: 0 is the coordinator. answers: whether the coordinator reaches it now. leftovers: transactions that were
    prepared there and neither committed nor rolled back; None where it does not answer, as for bytes and replicas."""

    group: int
    name: str
    port: int
    is_active: bool
    takes_shards: bool
    answers: bool
    shards: int = 0
    bytes: int | None = None
    leftovers: int | None = None
    replicas: tuple[Replica, ...] | None = None

    @property
    def is_coordinator(self) -> bool:
        return self.group == 0

    @property
    def address(self) -> str:
        return f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Shard:
    """bytes: None where its node does not answer."""

    shard_id: int
    table: str
    group: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class PlacedVersion:
    """One index version of a collection: where its chunks are. groups: of nodes; bytes: None where one does not
    answer. is_away: whether a node that holds a part of it does not answer."""

    collection: str
    number: int
    is_serving: bool
    placement: str
    chunks: int
    groups: tuple[int, ...]
    bytes: int | None
    is_away: bool


@dataclass(frozen=True, slots=True)
class Moving:
    """A shard that is on its way. percent: of its bytes."""

    table: str
    shard_id: int
    source: str
    target: str
    percent: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """version: of Citus; "" on one PostgreSQL, and then nothing else is known."""

    version: str
    nodes: tuple[Node, ...] = ()
    versions: tuple[PlacedVersion, ...] = ()
    shards: tuple[Shard, ...] = ()
    moving: tuple[Moving, ...] = ()

    @property
    def away(self) -> list[Node]:
        return [node for node in self.nodes if not node.answers]

    @property
    def leftovers(self) -> int:
        return sum(node.leftovers or 0 for node in self.nodes)

    def address_of(self, group: int) -> str:
        return next((node.address for node in self.nodes if node.group == group), "")


@dataclass(frozen=True, slots=True)
class _Told:
    """What one server said. sizes: table or shard -> bytes."""

    sizes: dict[str, int]
    leftovers: int
    replicas: tuple[Replica, ...]


def read_cluster() -> ClusterState:
    """The state now, for administrators of the server. Each node is asked once; one that is gone costs some seconds.

    Raises Forbidden.
    """
    require(Permission.ADMINISTER)
    rows = fetch_all(connection, HAS_CITUS)
    if not rows or not count_nodes(connection):
        return ClusterState("")
    own = _understand(fetch_all(connection, TELL)[0][0])
    told = {where: _understand(said) for where, said in ask_nodes(connection, TELL).items()}
    placements = [(int(pk), str(table), int(group)) for pk, table, group in fetch_all(connection, SHARDS)]
    nodes = []
    sizes_of: dict[int, Mapping[str, int]] = {}
    for group, name, port, is_active, takes in fetch_all(connection, NODES):
        said = own if group == 0 else told.get((str(name), int(port)))
        here = _sizes(said, of_shards=group > 0) if said else {}
        sizes_of[group] = here if group else {}
        nodes.append(
            Node(
                group, str(name), int(port), bool(is_active), bool(takes), said is not None,
                shards=sum(each == group for _, _, each in placements),
                bytes=sum(here.values()) if said else None,
                leftovers=said.leftovers if said else None,
                replicas=said.replicas if said else None,
            )
        )  # fmt: skip
    shards = tuple(
        Shard(pk, table, group, sizes_of.get(group, {}).get(f"{table}_{pk}")) for pk, table, group in placements
    )
    away = {node.group for node in nodes if not node.answers}
    versions = _versions(shards, _sizes(own, of_shards=False), away)
    return ClusterState(str(rows[0][0]), tuple(nodes), tuple(versions), shards, tuple(_moving()))


def _understand(said: str) -> _Told:
    values = json.loads(said)
    copies = [
        Replica(name, address, state, None if lag is None else int(lag), None if lag_s is None else float(lag_s))
        for name, address, state, lag, lag_s in values["replicas"]
    ]
    return _Told(values["sizes"], int(values["prepared"]), tuple(copies))


def _sizes(said: _Told, *, of_shards: bool) -> dict[str, int]:
    """Of shards, whose names end with their number, or of whole tables."""
    return {name: size for name, size in said.sizes.items() if bool(TABLE.fullmatch(name)) != of_shards}


def _versions(shards: Sequence[Shard], own: Mapping[str, int], away: set[int]) -> list[PlacedVersion]:
    names = dict(Collection.objects.live().values_list("pk", "name"))
    found = []
    for pk, number, placement, chunks, serving in fetch_all(connection, PLACED):
        if pk not in names or number <= 0:
            continue
        table = f"chunks_c{pk}_g{number}"
        mine = [shard for shard in shards if shard.table == table]
        known = [shard.bytes for shard in mine]
        size = own.get(table) if not mine else None if None in known else sum(each or 0 for each in known)
        groups = tuple(sorted({shard.group for shard in mine})) or (0,)
        found.append(
            PlacedVersion(
                names[pk], int(number), bool(serving), str(placement), int(chunks), groups, size, bool(away & {*groups})
            )
        )
    return sorted(found, key=lambda each: (each.collection, each.number))


def _moving() -> list[Moving]:
    moving = []
    for table, pk, source, source_port, target, target_port, progress, before, after in fetch_all(connection, MOVING):
        share = 100 if progress == 2 else round(100 * int(after or 0) / int(before)) if before else 0
        moving.append(
            Moving(str(table), int(pk), f"{source}:{source_port}", f"{target}:{target_port}", min(100, share))
        )
    return moving


def as_dict(state: ClusterState) -> dict[str, Any]:
    """As `ragd status --cluster --json` prints it."""
    return {
        "citus": state.version or None,
        "nodes": [
            {
                "address": node.address, "role": "coordinator" if node.is_coordinator else "node",
                "active": node.is_active, "answers": node.answers, "shards": node.shards, "bytes": node.bytes,
                "prepared_transactions": node.leftovers,
                "replicas": None if node.replicas is None else [asdict(each) for each in node.replicas],
            }
            for node in state.nodes
        ],
        "index_versions": [
            {
                "collection": each.collection, "number": each.number, "serving": each.is_serving,
                "placement": each.placement, "chunks": each.chunks, "bytes": each.bytes,
                "nodes": [state.address_of(group) for group in each.groups], "away": each.is_away,
            }
            for each in state.versions
        ],
        "moving": [
            {"table": each.table, "shard": each.shard_id, "from": each.source, "to": each.target,
             "percent": each.percent}
            for each in state.moving
        ],
    }  # fmt: skip


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
        )
    moves = plan_moves(state.shards, state.nodes)
    for each in moves if not is_dry else ():
        values = {
            "shard": each.shard.shard_id, "source": each.source.name, "source_port": each.source.port,
            "target": each.target.name, "target_port": each.target.port,
        }  # fmt: skip
        fetch_all(connection, MOVE, values)
    if moves and not is_dry:
        services.record_event(
            actor, "cluster.rebalance", f"moved {counted(len(moves), 'shard')} between nodes",
            subject=services.Subject("cluster"),
            after={"moves": [each.as_dict() for each in moves]},
        )  # fmt: skip
    return moves


def recover(actor: Any) -> int:
    """Commit or roll back what nodes prepared and heard no more of, as the coordinator decided; how many. Citus does
    the same once a minute. Raises ServiceError 409 on one PostgreSQL."""
    _cluster()
    recovered = int(fetch_all(connection, RECOVER)[0][0])
    if recovered:
        services.record_event(
            actor,
            "cluster.recover",
            f"ended {counted(recovered, 'prepared transaction')}",
            subject=services.Subject("cluster"),
        )
    return recovered


def _cluster() -> ClusterState:
    state = read_cluster()
    if not state.version:
        raise ServiceError(
            "this database is one PostgreSQL, not the coordinator of a Citus cluster with nodes; docs/scaling.md says"
            " how to make one",
            type="no_cluster",
        )
    return state
