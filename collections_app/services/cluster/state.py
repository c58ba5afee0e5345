"""What the coordinator of a Citus cluster knows of its nodes, and what each node that answers says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from collections_app.access_context import require
from collections_app.domain.permissions import Permission
from collections_app.models import Collection
from ragd.store.placement import count_nodes
from ragd.store.store import fetch_all

CONNECT_S = 3  # to a node that may be gone
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
ANSWERS = "SELECT citus_check_connection_to_node(%(name)s, %(port)s)"
ON_NODES = "SELECT nodename, nodeport, result FROM run_command_on_workers(%(sql)s) WHERE success"
SIZES = r"""
SELECT coalesce(json_object_agg(relname, pg_total_relation_size(oid)), '{}') FROM pg_class
WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+_[0-9]+$'
"""
PREPARED = "SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'citus\\_%' AND prepared < now() - interval '5 s'"
OWN_SIZES = r"""
SELECT relname, pg_total_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND relname ~ '^chunks_c[0-9]+_g[0-9]+$'
"""
MOVING = """
SELECT table_name::text, shardid, sourcename, sourceport, targetname, targetport, progress, source_shard_size,
       target_shard_size
FROM get_rebalance_progress() ORDER BY shardid
"""
PLACED = "SELECT collection_id, generation, placement, chunk_count, serving FROM chunk_stats ORDER BY 1, 2"


@dataclass(frozen=True, slots=True)
class Node:
    """group: 0 is the coordinator. answers: whether the coordinator reaches it now. leftovers: transactions that were
    prepared there and neither committed nor rolled back; None where it does not answer, as for bytes."""

    group: int
    name: str
    port: int
    is_active: bool
    takes_shards: bool
    answers: bool
    shards: int = 0
    bytes: int | None = None
    leftovers: int | None = None

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

    @property
    def is_well(self) -> bool:
        return not self.away and not self.leftovers

    def address_of(self, group: int) -> str:
        return next((node.address for node in self.nodes if node.group == group), "")


@dataclass(slots=True)
class _Told:
    """What the nodes that answer said, by (name, port)."""

    sizes: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)
    leftovers: dict[tuple[str, int], int] = field(default_factory=dict)


def read_cluster() -> ClusterState:
    """The state now, for administrators of the server. Asks each node; one that is gone costs CONNECT_S seconds.

    Raises Forbidden.
    """
    require(Permission.ADMINISTER)
    rows = fetch_all(connection, HAS_CITUS)
    if not rows or not count_nodes(connection):
        return ClusterState("")
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('citus.node_connection_timeout', %s, false)", [f"{CONNECT_S}s"])
        try:
            return _read(str(rows[0][0]))
        finally:
            cursor.execute("RESET citus.node_connection_timeout")


def _read(version: str) -> ClusterState:
    told = _ask_nodes()
    own = {str(name): int(size) for name, size in fetch_all(connection, OWN_SIZES)}
    placements = [(int(pk), str(table), int(group)) for pk, table, group in fetch_all(connection, SHARDS)]
    nodes = []
    sizes_of: dict[int, dict[str, int] | None] = {}
    for group, name, port, is_active, takes in fetch_all(connection, NODES):
        where = (str(name), int(port))
        answers = group == 0 or bool(fetch_all(connection, ANSWERS, {"name": name, "port": port})[0][0])
        sizes_of[group] = {} if group == 0 else told.sizes.get(where)
        sizes = sizes_of[group]
        nodes.append(
            Node(
                group, where[0], where[1], bool(is_active), bool(takes), answers,
                shards=sum(each == group for _, _, each in placements),
                bytes=sum(own.values()) if group == 0 else None if sizes is None else sum(sizes.values()),
                leftovers=_prepared_here() if group == 0 else told.leftovers.get(where),
            )
        )  # fmt: skip
    shards = tuple(
        Shard(pk, table, group, (sizes_of.get(group) or {}).get(f"{table}_{pk}")) for pk, table, group in placements
    )
    away = {node.group for node in nodes if not node.answers}
    return ClusterState(version, tuple(nodes), tuple(_versions(shards, own, away)), shards, tuple(_moving()))


def _ask_nodes() -> _Told:
    told = _Told()
    for name, port, result in fetch_all(connection, ON_NODES, {"sql": SIZES}):
        told.sizes[str(name), int(port)] = {str(table): int(size) for table, size in json.loads(result).items()}
    for name, port, result in fetch_all(connection, ON_NODES, {"sql": PREPARED}):
        told.leftovers[str(name), int(port)] = int(result)
    return told


def _prepared_here() -> int:
    return int(fetch_all(connection, PREPARED)[0][0])


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
    """As `ragd cluster status --json` prints it."""
    return {
        "citus": state.version or None,
        "nodes": [
            {
                "address": node.address, "role": "coordinator" if node.is_coordinator else "node",
                "active": node.is_active, "answers": node.answers, "shards": node.shards, "bytes": node.bytes,
                "prepared_transactions": node.leftovers,
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
