"""What a collection held when it was searched: enough to say later whether it has changed."""

from __future__ import annotations

from typing import Any

from ragd.store.store import Store, fetch_all

READ_STATE = """
SELECT s.chunk_count, s.length_total,
       (SELECT max(d.updated_at) FROM documents d WHERE d.collection_id = s.collection_id)
FROM chunk_stats s
WHERE s.collection_id = %(collection_id)s AND s.generation = %(generation)s
"""


def read_store_state(store: Store) -> dict[str, Any]:
    """{"generation", "chunks", "lexemes", "documents_changed_at" (ISO 8601, None without documents)}, in one statement.

    Every write moves at least one of them: a new or changed document has a later time, a deleted one takes its chunks
    along. {} for a collection that is being deleted.
    """
    params = {"collection_id": store.collection.id, "generation": store.collection.generation}
    rows = fetch_all(store.connection, READ_STATE, params)
    if not rows:
        return {}
    chunks, lexemes, changed_at = rows[0]
    return {
        "generation": store.collection.generation,
        "chunks": chunks,
        "lexemes": lexemes,
        "documents_changed_at": changed_at.isoformat() if changed_at else None,
    }
