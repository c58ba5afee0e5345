"""A node that dies and comes back, shards that are evened out, a transaction that was left: prints JSON.

Run: python -m tests.cluster.deaths FOLDER PORT     (of the node that is killed; DATABASE_URL: the cluster)
"""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg

from tests.cluster.doors import text_of  # sets Django up, pages too

from django.contrib.auth.models import User  # isort: skip
from django.core.management import call_command  # isort: skip
from django.db import connection  # isort: skip
from django.test import Client  # isort: skip
from django.test.utils import CaptureQueriesContext  # isort: skip

from collections_app.access.context import SYSTEM, using_access  # isort: skip
from collections_app.models import Collection, Document  # isort: skip
from collections_app.index import cluster as cluster_state  # isort: skip
from collections_app.index.cluster import MOVE, rebalance, recover  # isort: skip
from collections_app.index.cluster import read_cluster  # isort: skip
from collections_app.collections.services import create_collection  # isort: skip
from collections_app.documents.services import ingest_text  # isort: skip
from collections_app.access.api_keys import NewKey, create_key  # isort: skip
from ragd_site.operations.summaries import storage_summary  # isort: skip
from ragd.store.tables import index_version_sizes  # isort: skip
from ragd.store.store import fetch_all  # isort: skip
from ragd_site.runtime.programs import server_account  # isort: skip
from tests.cluster.nodes import Node  # isort: skip

NAMES = ("one", "two", "three", "four")


def sizes(made: list[Collection]) -> dict[str, Any]:
    """Per collection its bytes as its index version and as the page on operations tell them; and the statements."""
    with CaptureQueriesContext(connection) as queries:
        listed = {each.name: each.chunks_bytes for each in storage_summary().collections}
        own = {each.name: index_version_sizes(connection, each.pk)[1][1] for each in made}
    told: dict[str, Any] = {name: [size, listed[name]] for name, size in own.items()}
    return told | {"statements": len(queries)}


def main(folder: Path, port: int) -> dict[str, Any]:
    node = Node(folder, server_account(folder.parent), port)
    _, key = create_key(NewKey("cluster"))
    client = Client(SERVER_NAME="127.0.0.1", headers={"Authorization": f"Bearer {key}"})

    def call(method: str, path: str, body: Any = None) -> Any:
        return client.generic(method, path, json.dumps(body or {}), content_type="application/json")

    def search(name: str) -> tuple[int, list[str], str, str]:
        answer = call("POST", f"/v1/collections/{name}/search", {"query": "otter falcon", "exact": "always"})
        told = answer.json()
        keys = [f"{each['doc_id']}#{each['chunk_index']}" for each in told.get("results", [])]
        return answer.status_code, keys, told.get("error", {}).get("type", ""), answer.headers.get("Retry-After", "")

    admin = Client(SERVER_NAME="127.0.0.1", raise_request_exception=False)
    admin.force_login(User.objects.create_superuser("deaths"))
    made = [create_collection(name=name, placement="node") for name in NAMES]
    few = sizes(made[:1])["statements"], sizes(made[:2])["statements"]
    made += [create_collection(name="all", placement="spread"), create_collection(name="here", placement="local")]
    for collection in made:
        for number in range(6):
            ingest_text(collection, f"d{number}", text_of(number))
    pk_of = {collection.name: collection.pk for collection in made}
    seen: dict[str, Any] = {"statements": [*few, sizes(made)["statements"]]}
    seen |= {"even": [move.as_dict() for move in rebalance(None, is_dry=True)]}

    # everything on one node, and evened out again
    before = read_cluster()
    first, second = (each for each in before.nodes if not each.is_coordinator)
    for shard in before.shards:
        if shard.group == second.group and "_g1" in shard.table:
            values = {"shard": shard.shard_id, "source": second.name, "source_port": second.port}
            fetch_all(connection, MOVE, values | {"target": first.name, "target_port": first.port})
    seen["uneven"] = len(rebalance(None, is_dry=True))
    seen["moved"] = len(rebalance(None))
    after = read_cluster()
    seen["shards"] = [each.shards for each in after.nodes]
    seen["left to move"] = len(rebalance(None, is_dry=True))

    # a transaction that a node prepared and heard no more of
    with psycopg.connect(node.url(connection.settings_dict["NAME"]), autocommit=True) as session:
        session.execute("BEGIN")
        session.execute("CREATE TABLE left_over (name text)")
        session.execute("PREPARE TRANSACTION 'citus_0_4711_9999_1'")
    cluster_state.TELL = cluster_state.TELL.replace("interval '5 s'", "interval '0 s'")
    seen["leftovers"] = [read_cluster().leftovers, recover(None), read_cluster().leftovers]

    # a node dies, which holds one of the placed collections and not another
    killed, other = (first, second) if first.port == port else (second, first)
    for name, target in (("one", killed), ("two", other)):
        [placed] = [each for each in after.versions if each.collection == name]
        [shard] = [each for each in after.shards if each.table == f"chunks_c{pk_of[name]}_g{placed.number}"]
        if shard.group != target.group:
            source = other if target is killed else killed
            values = {"shard": shard.shard_id, "source": source.name, "source_port": source.port}
            fetch_all(connection, MOVE, values | {"target": target.name, "target_port": target.port})
    on_node = {each.collection for each in read_cluster().versions if killed.group in each.groups}
    seen["whole"] = {each.name: search(each.name) for each in made}
    seen["sizes"] = sizes(made)
    node.stop()
    connection.close()
    try:
        seen["sizes of the dead"] = sizes(made)
        seen["dead"] = {each.name: search(each.name) for each in made}
        write = [call("PUT", f"/v1/collections/{each.name}/documents/late", {"content": text_of(9)}) for each in made]
        seen["written"] = {each.name: answer.status_code for each, answer in zip(made, write, strict=True)}
        told = StringIO()
        call_command("migrate", verbosity=0, stderr=told)
        seen["started"] = f":{node.port}" in told.getvalue()
        pages = {each.name: admin.get(f"/collections/{each.name}/health/") for each in made}
        seen["pages"] = {name: [page.status_code, page.headers.get("Retry-After")] for name, page in pages.items()}
        state = read_cluster()
        seen["away"] = [each.port for each in state.away]
        seen["versions away"] = sorted({each.collection for each in state.versions if each.is_away})
    finally:
        node.start()
    connection.close()
    seen["on node"] = sorted(on_node)
    seen["back"] = {each.name: search(each.name) for each in made}
    known = set(Document.objects.filter(doc_id="late").values_list("collection_id", flat=True))
    seen["late"] = {each.name: each.pk in known for each in made}
    chunks = "SELECT count(*) FROM chunks_c{}_g1 WHERE doc_id = 'late'"
    seen["late chunks"] = {each.name: bool(fetch_all(connection, chunks.format(each.pk))[0][0]) for each in made}
    return seen


if __name__ == "__main__":
    with using_access(SYSTEM):
        print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
