"""A node with a streaming replica that keeps up, stops replaying and goes away, as ragd tells it: prints JSON.

Run: python -m tests.cluster.copies FOLDER PORT     (of the node; DATABASE_URL: the cluster)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import tests.cluster.doors  # noqa: F401  (sets Django up)

from django.contrib.auth.models import User  # isort: skip
from django.core.management import call_command  # isort: skip
from django.test import Client  # isort: skip

from collections_app.access.context import SYSTEM, using_access  # isort: skip
from ragd_site.runtime.programs import server_account  # isort: skip
from tests.cluster.nodes import Node  # isort: skip
from tests.web.pages import attribute, texts  # isort: skip

PATIENCE_S = 30.0
MUCH = "CREATE TABLE much AS SELECT repeat('x', 100) FROM generate_series(1, 100000)"


def main(folder: Path, port: int) -> dict[str, Any]:
    node = Node(folder, server_account(folder.parent), port)
    admin = Client(SERVER_NAME="127.0.0.1")
    admin.force_login(User.objects.create_superuser("copies"))

    def status() -> dict[int, list[dict[str, Any]]]:
        """Port -> its replicas."""
        written = StringIO()
        call_command("ragd", "status", "--cluster", "--json", stdout=written)
        nodes = json.loads(written.getvalue())["cluster"]["nodes"]
        return {int(each["address"].split(":")[1]): each["replicas"] for each in nodes}

    def see(wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The node's replica once it is as wanted, or as it is in the end; with the page's."""
        until = time.monotonic() + PATIENCE_S
        while not (found := status()[port]) or (not wanted(found[0]) and time.monotonic() < until):
            time.sleep(0.1)
        page = admin.get("/operations/?view=cluster")
        shown = texts(page, "[data-replica]"), attribute(page, "[data-replica]", "data-streams")
        return {"json": found, "page": shown}

    seen: dict[str, Any] = {"none": list(status().values())}
    seen["page without"] = texts(admin.get("/operations/?view=cluster"), "[data-node] td:last-child")
    copy = node.copy(folder.parent / "copy", "copy")
    try:
        seen["level"] = see(lambda each: each["lag_bytes"] == 0)
        seen["others"] = [replicas for port_, replicas in status().items() if port_ != port]
        copy.execute("SELECT pg_wal_replay_pause()")
        node.execute(MUCH)
        seen["behind"] = see(lambda each: (each["lag_bytes"] or 0) > 1_000_000)
    finally:
        copy.stop()
    node.execute("DROP TABLE much")
    seen["away"] = see(lambda each: each["state"] == "away" and each["lag_bytes"] > 0)
    node.execute("SELECT pg_drop_replication_slot('copy')")
    seen["gone"] = status()[port]
    return seen


if __name__ == "__main__":
    with using_access(SYSTEM):
        print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
