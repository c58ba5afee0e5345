"""The HTTP API of collections, documents, uploads, generations, jobs and keys. ragd_site mounts `router` under /v1."""

from __future__ import annotations

from ninja import Router

from collections_app.api import batches, collections, documents, generations, jobs, keys, probes, syncs
from collections_app.api import uploads as uploads  # its endpoint is on the router of documents

router = Router()
for part in (batches, collections, documents, generations, jobs, keys, probes, syncs):
    router.add_router("", part.router)
