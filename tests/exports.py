"""A collection's export as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from collections_app.audit import services
from collections_app.collections.export import open_export
from collections_app.models import Collection


def export_to_file(
    collection: Collection, path: str | os.PathLike[str], *, actor: services.Actor = None
) -> dict[str, Any]:
    """Write it. Returns {"collection", "file", "bytes", "documents", "chunks", "seconds", "counts"}."""
    requested = Path(path)
    export = open_export(collection, actor=actor)
    try:
        with requested.open("wb") as file:
            file.writelines(export)
    except BaseException:
        export.close()
        requested.unlink(missing_ok=True)
        raise
    return {
        "collection": collection.name,
        "file": str(requested),
        "bytes": export.bytes,
        "documents": export.counts["documents"],
        "chunks": export.counts["chunks"],
        "seconds": export.running.operation.took_s,
        "counts": export.counts,
    }
