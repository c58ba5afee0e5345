"""Where the chunks of an index version are: in this database, on one node of a Citus cluster, or spread over its nodes.

The table of the chunks is distributed; everything else stays on the coordinator, which is this database. "node": the
table is one shard, and a search touches one node. "spread": a shard on each node, by hash of doc_id; a search asks all
of them and the coordinator merges. More shards than nodes would let some move to a node that comes later, and cost each
search an index more to walk: a new index version spreads over all nodes instead. Settings of a session do not reach the
nodes. Those that SET LOCAL makes do, until the end of the transaction, where `citus.propagate_set_commands` is "local".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import get_args

from ragd.errors import InvalidInput
from ragd.store.store import Connection, execute, fetch_all, vector_index_progress
from ragd.types import Placement

HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
NODES = """
SELECT count(*) FROM pg_dist_node WHERE noderole = 'primary' AND isactive AND shouldhaveshards AND groupid > 0
"""
HAS_PLACED = """
SELECT EXISTS (SELECT FROM chunk_stats WHERE placement <> 'local' AND collection_id = coalesce(%(id)s, collection_id))
"""
# A node that is gone costs CONNECT_S seconds. Whatever asks nodes must name `patience`, or it might ask before.
CONNECT_S = 3
PATIENCE = f"patience AS MATERIALIZED (SELECT set_config('citus.node_connection_timeout', '{CONNECT_S}s', true) AS set)"
# One statement on each node, whatever they hold; of a node that does not answer there are no rows.
BYTES_ON_NODES = f"""
WITH {PATIENCE}, known AS MATERIALIZED (
    SELECT told.* FROM patience CROSS JOIN LATERAL (SELECT * FROM citus_shard_sizes() WHERE patience.set <> '') AS told
)
SELECT s.logicalrelid::text, CASE WHEN bool_and(known.size IS NOT NULL) THEN sum(known.size)::bigint END
FROM pg_dist_shard s LEFT JOIN known ON known.shard_id = s.shardid
WHERE s.logicalrelid::text ~ %(tables)s GROUP BY 1 ORDER BY 1
"""  # noqa: S608  (constants of the library)
# Of nodes that answered, inactive ones too, which run_command_on_workers leaves out.
ON_NODES = f"""
WITH {PATIENCE}
SELECT told.* FROM patience CROSS JOIN LATERAL (
    SELECT node_name, node_port, result
    FROM (SELECT array_agg(nodename) AS names, array_agg(nodeport) AS ports, array_agg(%(sql)s::text) AS commands
          FROM pg_dist_node WHERE noderole = 'primary' AND groupid > 0) AS asked,
         master_run_on_worker(asked.names, asked.ports, asked.commands, true)
    WHERE patience.set <> '' AND success
) AS told
"""  # noqa: S608  (constants of the library)
SHARD_BUILDS = r"""
SELECT coalesce(json_agg(json_build_array(p.phase, p.done, p.total)), '[]')
FROM (SELECT phase, relid, CASE WHEN tuples_total > 0 THEN tuples_done ELSE blocks_done END AS done,
             CASE WHEN tuples_total > 0 THEN tuples_total ELSE blocks_total END AS total
      FROM pg_stat_progress_create_index) AS p
JOIN pg_class c ON c.oid = p.relid WHERE c.relname ~ '^{table}_[0-9]+$'
"""
PROPAGATE = "SET LOCAL citus.propagate_set_commands = 'local'"
ON_ONE_NODE = "SELECT create_distributed_table(%(table)s, NULL, colocate_with => 'none')"
SPREAD = "SELECT create_distributed_table(%(table)s, 'doc_id', shard_count => %(shards)s, colocate_with => 'none')"


def count_nodes(connection: Connection) -> int:
    """How many nodes hold chunks beside this one; 0 where the database is not the coordinator of a cluster."""
    ((has_citus,),) = fetch_all(connection, HAS_CITUS)
    return int(fetch_all(connection, NODES)[0][0]) if has_citus else 0


def bytes_on_nodes(connection: Connection, collection_id: int | None = None) -> dict[str, int | None]:
    """Of each table of chunks that is on nodes, of one collection or of all: its bytes there, with indexes; None where
    a node that holds a part of it does not answer. {} where none is on nodes."""
    if not fetch_all(connection, HAS_PLACED, {"id": collection_id})[0][0]:
        return {}
    tables = f"^chunks_c{'[0-9]+' if collection_id is None else collection_id}_g[0-9]+$"
    return dict(fetch_all(connection, BYTES_ON_NODES, {"tables": tables}))


def ask_nodes(connection: Connection, sql: str) -> dict[tuple[str, int], str]:
    """(name, port) -> the one value that a statement gives on each node that answers. All are asked at once, and those
    that are gone take CONNECT_S seconds."""
    return {(name, int(port)): value for name, port, value in fetch_all(connection, ON_NODES, {"sql": sql})}


def build_progress(connection: Connection, collection_id: int, table: str) -> tuple[str, int, int] | None:
    """As `vector_index_progress`, wherever the table is: on nodes that of all its shards together, in the phase of the
    one that is least far."""
    if not fetch_all(connection, HAS_PLACED, {"id": collection_id})[0][0]:
        return vector_index_progress(connection, table)
    told = ask_nodes(connection, SHARD_BUILDS.format(table=table))
    builds = [build for answer in told.values() for build in json.loads(answer)]
    if not builds:  # first it is made here, over no rows
        return vector_index_progress(connection, table)
    phase, *_ = min(builds, key=lambda build: (build[1] or 0) / max(build[2] or 0, 1))
    return str(phase), sum(build[1] or 0 for build in builds), sum(build[2] or 0 for build in builds)


def choose_placement(connection: Connection, requested: str | None) -> Placement:
    """The placement of a new table; None: "node" on a cluster, "local" elsewhere.

    Raises InvalidInput for an unknown one, and for one that needs nodes where there are none.
    """
    nodes = count_nodes(connection)
    known: tuple[Placement, ...] = get_args(Placement)
    for placement in known:
        if placement == (requested or ("node" if nodes else "local")):
            if placement == "local" or nodes:
                return placement
            raise InvalidInput(
                f"placement {placement!r} needs a Citus cluster with nodes, and this database has none; use 'local'",
                field="placement",
            )
    raise InvalidInput(f"placement must be one of {', '.join(known)}, not {requested!r}", field="placement")


def distribute(connection: Connection, table: str, placement: Placement) -> None:
    """Move an empty table of this database to where the placement says."""
    if placement == "node":
        fetch_all(connection, ON_ONE_NODE, {"table": table})
    elif placement == "spread":
        fetch_all(connection, SPREAD, {"table": table, "shards": count_nodes(connection)})


def set_everywhere(connection: Connection, settings: Mapping[str, str]) -> None:
    """Settings until the end of the transaction, here and on the nodes that it reaches. In one round trip."""
    quoted = {name: value.replace("'", "''") for name, value in settings.items()}
    execute(connection, "; ".join([PROPAGATE, *(f"SET LOCAL {name} = '{value}'" for name, value in quoted.items())]))
