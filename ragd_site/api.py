"""The one API object: routers of the apps, errors in one shape, health, OpenAPI."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from pathlib import Path
from typing import Any

import ninja
import pydantic
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import path, re_path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import etag, require_safe
from ninja import NinjaAPI, Status
from ninja.errors import HttpError, ValidationError
from ninja.openapi.docs import DocsBase
from ninja.responses import NinjaJSONEncoder

from collections_app import errors
from collections_app.access import grant_api, key_api
from collections_app.audit import api as audit
from collections_app.chunks import api as chunks
from collections_app.collections import api as collections
from collections_app.collections import transfer_api
from collections_app.documents import api as documents
from collections_app.documents.revisions import api as revisions
from collections_app.http.validation import Api, refuse_unknown_parameters
from collections_app.index import api as index_versions
from collections_app.jobs import api as jobs
from collections_app.jobs import operation_api
from collections_app.sources import api as sources
from collections_app.sources import fetch_api
from evaluation_app.curation import api as curation
from evaluation_app.experiments import api as experiments
from evaluation_app.failures import views as failures
from evaluation_app.golden import api as golden
from evaluation_app.runs import api as evaluation_runs
from evaluation_app.scoring import api as scoring
from evaluation_app.telemetry.evidence import pages as evidence
from evaluation_app.telemetry.search import api as spans
from ragd.store.tables import is_supported_pgvector
from ragd_site.embedded import write_private
from ragd_site.environment import REPOSITORY
from retrieval_app.chat import api as chat
from retrieval_app.search import api as retrieval

logger = logging.getLogger(__name__)

SELECT_SCHEMA = "SELECT extversion, (SELECT 1 FROM collections LIMIT 1) FROM pg_extension WHERE extname = 'vector'"


class Reference(DocsBase):
    """The page that draws the API's description."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        return render(request, "api_reference.html", {"source": self.get_openapi_url(api, kwargs)})


api = Api(
    title="ragd",
    version="1",
    description="A RAG server: collections, documents, search, answers with checked citations, runs and their spans.",
    docs=Reference(),
    docs_url="/docs",
    openapi_url="/openapi.json",
    urls_namespace="api",
)

api.add_decorator(refuse_unknown_parameters, mode="view")


def error_response(request: HttpRequest, exc: BaseException) -> JsonResponse:
    """All errors have one shape, but for the clients that expect OpenAI's."""
    answer = chat.error_response if chat.speaks_openai(request.path_info) else errors.error_response
    return answer(request, exc)


# ninja brings handlers of its own for these
for kind in (Exception, Http404, HttpError, ValidationError):
    api.add_exception_handler(kind, error_response)  # type: ignore[arg-type]


@api.get(
    "/health", operation_id="health", auth=None, tags=["health"], response={200: dict[str, str], 503: dict[str, Any]}
)
def health(request: HttpRequest) -> Status[dict[str, Any]]:
    """Answers 200 when the database serves the schema, else 503 naming the part that fails.

    A pgvector that is too old fails too.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute(SELECT_SCHEMA)
            pgvector, _ = cursor.fetchone() or ("0", None)
    except DatabaseError as error:
        logger.warning("health: the database fails: %s", error)
        message = "the database does not answer or has no schema; look at its log, run the migrations"
        return Status(503, errors.error_body("database_unavailable", message, "database"))
    if not is_supported_pgvector(pgvector):
        message = (
            f"ragd needs pgvector 0.8.4 or newer, and the database has {pgvector}; upgrade it, then run ALTER EXTENSION"
        )
        return Status(503, errors.error_body("unsupported_database", f"{message} vector UPDATE there", "database"))
    return Status(200, {"status": "ok"})


# transfers first: its address for imports looks like that of a collection
for part in (
    transfer_api, audit, chunks, collections, sources, documents, index_versions, grant_api, jobs, key_api,
    operation_api, revisions, fetch_api, retrieval, chat, evidence, spans, golden, evaluation_runs, experiments,
    curation, scoring, failures,
):  # fmt: skip
    api.add_router("", part.router)


def digest_code() -> str:
    """Names, sizes and times of the product's modules and the versions of what describes them, in one hash."""
    digest = hashlib.sha256(f"{ninja.__version__} {pydantic.VERSION}".encode())
    for app in ("collections_app", "evaluation_app", "ragd", "ragd_site", "retrieval_app"):
        for module in sorted((REPOSITORY / app).rglob("*.py")):
            shape = module.stat()
            digest.update(f"{module} {shape.st_size} {shape.st_mtime_ns}\n".encode())
    return digest.hexdigest()


class OpenApiDocument:
    """The API's description as JSON, made once for the code as it is, by `ragd_site.prepare` or at its first use, and
    kept in a file of the folder."""

    def __init__(self, api: NinjaAPI, folder: Path) -> None:
        self.api, self.folder = api, folder
        self._lock = threading.Lock()
        self._body: bytes | None = None

    def read(self) -> bytes:
        with self._lock:
            if self._body is None:
                path = self.folder / f"openapi-{digest_code()}.json"
                if not path.exists():
                    body = json.dumps(self.api.get_openapi_schema(), cls=NinjaJSONEncoder)
                    for earlier in self.folder.glob("openapi-*.json"):
                        earlier.unlink(missing_ok=True)
                    write_private(path, body)
                self._body = path.read_bytes()
        return self._body

    def etag(self, request: HttpRequest) -> str:
        """Of the content: processes and versions that describe the same API share it."""
        return f'"{hashlib.sha256(self.read()).hexdigest()}"'


openapi_document = OpenApiDocument(api, settings.RAGD_VAR)


@login_not_required
@gzip_page
@require_safe
@etag(openapi_document.etag)
def openapi_view(request: HttpRequest) -> HttpResponse:
    """Anybody may keep it, and asks each time whether it still holds."""
    return HttpResponse(
        openapi_document.read(), content_type="application/json", headers={"Cache-Control": "public, no-cache"}
    )


def api_urls() -> tuple[list[Any], str, str]:
    """The API's URLs, free of the log-in page: a bearer key is its log-in."""
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if pattern.callback is not None:
            pattern.callback = login_not_required(pattern.callback)
    nowhere = re_path(r"^.*$", csrf_exempt(login_not_required(errors.unknown_route)))
    openapi = path(str(api.openapi_url).lstrip("/"), openapi_view)  # instead of ninja's, which makes it each time
    return [openapi, *patterns, nowhere], app_name, namespace
