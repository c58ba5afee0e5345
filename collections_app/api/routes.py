"""The HTTP API of collections and what is in them, of jobs and keys. ragd_site mounts `router` under /v1."""

from __future__ import annotations

from ninja import Router

from collections_app.api import (
    chunks,
    collections,
    connectors,
    documents,
    generations,
    jobs,
    revisions,
    sources,
    transfers,
)
from collections_app.api import uploads as uploads  # its endpoint is on the router of documents
from collections_app.api.governance import audit, document_access, grants, keys

router = Router()
# transfers first: its address for imports looks like that of a collection
PARTS = (
    transfers,
    audit,
    chunks,
    collections,
    connectors,
    document_access,
    documents,
    generations,
    grants,
    jobs,
    keys,
    revisions,
    sources,
)
for part in PARTS:
    router.add_router("", part.router)
