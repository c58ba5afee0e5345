"""The HTTP API of collections and what is in them, of jobs and keys. ragd_site mounts `router` under /v1."""

from __future__ import annotations

from ninja import Router

from collections_app.api import (
    chunks,
    collections,
    documents,
    generations,
    grants,
    jobs,
    keys,
    revisions,
    sources,
    transfers,
)
from collections_app.api import uploads as uploads  # its endpoint is on the router of documents

router = Router()
# transfers first: its address for imports looks like that of a collection
for part in (transfers, chunks, collections, documents, generations, grants, jobs, keys, revisions, sources):
    router.add_router("", part.router)
