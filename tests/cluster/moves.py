"""One collection from the coordinator over all nodes and one node and back, over DATABASE_URL: prints JSON.

Run: python -m tests.cluster.moves
"""

from __future__ import annotations

import json

from tests.cluster.flow import rankings, text_of  # sets Django up

from collections_app.access.context import SYSTEM, using_access  # isort: skip
from collections_app.models import Collection  # isort: skip
from collections_app.collections.services import create_collection  # isort: skip
from collections_app.documents.services import ingest_text  # isort: skip
from collections_app.index.services import start_index_version  # isort: skip
from collections_app.index.stores import open_store  # isort: skip


def move(made: Collection, placement: str) -> tuple[str, object]:
    """Where it is then, and what it ranks."""
    start_index_version(made, {"placement": placement})
    made.refresh_from_db()
    return open_store(made).collection.placement, rankings(made)


if __name__ == "__main__":
    with using_access(SYSTEM):
        made = create_collection(name="moving", placement="local")
        for number in range(24):
            ingest_text(made, f"d{number}", text_of(number))
        steps = [(open_store(made).collection.placement, rankings(made))]
        steps += [move(made, placement) for placement in ("spread", "node", "local")]
        print(json.dumps({"placements": [place for place, _ in steps], "rankings": [found for _, found in steps]}))
