"""The HTTP API of collections and what is in them, of jobs and keys. ragd_site mounts `router` under /v1."""

from __future__ import annotations

from ninja import Router

from collections_app.access import grant_api, key_api
from collections_app.audit import api as audit
from collections_app.chunks import api
from collections_app.collections import api as collections
from collections_app.collections import transfer_api
from collections_app.documents import api as documents
from collections_app.documents.revisions import api as revisions
from collections_app.index import api as index_versions
from collections_app.jobs import api as jobs
from collections_app.jobs import operation_api
from collections_app.sources import api as sources
from collections_app.sources import fetch_api

router = Router()
# transfers first: its address for imports looks like that of a collection
PARTS = (
    transfer_api, audit, api, collections, sources, documents, index_versions, grant_api, jobs, key_api, operation_api,
    revisions, fetch_api,
)  # fmt: skip
for part in PARTS:
    router.add_router("", part.router)
