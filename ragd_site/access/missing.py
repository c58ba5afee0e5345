"""What the address of a page names that is not there, in a sentence for its 404, as far as the reader may know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_noop

from collections_app.models import Document, IngestBatch, IngestJob, ModelSetting, Operation, Source
from evaluation_app.models import AlertRule, EvaluationRun, Experiment, GoldenSet, ReviewTask, Span, Webhook
from ragd_site.access.page_rules import find_collection_id
from retrieval_app.models import ChatAssistant, ChatThread, QueryRun

QUERY_RUN, EVALUATION_RUN = gettext_noop("Query run"), gettext_noop("Evaluation run")
# the start of the address, its argument, the model that it is the key (or the field of that name) of, the word for it
ITEMS: tuple[tuple[str, str, type[Model], str], ...] = (
    ("", "run_id", QueryRun, QUERY_RUN),
    ("", "other_id", QueryRun, QUERY_RUN),
    ("", "trace_id", Span, gettext_noop("Trace")),
    ("", "span_id", Span, gettext_noop("Span")),
    ("", "thread_id", ChatThread, gettext_noop("Thread")),
    ("", "job_id", IngestJob, gettext_noop("Job")),
    ("", "batch_id", IngestBatch, gettext_noop("Upload")),
    ("", "operation_id", Operation, gettext_noop("Operation")),
    ("", "sync_id", Operation, gettext_noop("Sync")),
    ("collections/<str:name>/sources/", "pk", Source, gettext_noop("Source")),
    ("alerts/rules/", "pk", AlertRule, gettext_noop("Alert rule")),
    ("alerts/webhooks/", "pk", Webhook, gettext_noop("Webhook")),
    ("chat/assistants/", "pk", ChatAssistant, gettext_noop("Assistant")),
    ("evaluation/runs/", "pk", EvaluationRun, EVALUATION_RUN),
    ("evaluation/runs/", "other", EvaluationRun, EVALUATION_RUN),
    ("evaluation/board/runs/", "pk", EvaluationRun, EVALUATION_RUN),
    ("evaluation/board/sets/", "pk", GoldenSet, gettext_noop("Test set")),
    ("evaluation/sets/", "pk", GoldenSet, gettext_noop("Test set")),
    ("evaluation/experiments/", "pk", Experiment, gettext_noop("Experiment")),
    ("evaluation/review/", "pk", ReviewTask, gettext_noop("Review")),
    ("models/<int:pk>/", "pk", ModelSetting, gettext_noop("Model")),
    ("people/groups/", "pk", Group, gettext_noop("Group")),
    ("people/<int:pk>/", "pk", User, gettext_noop("Person")),
)


def spell_missing(request: HttpRequest) -> str:
    """The first of what the address names that is not there for this reader; "" where all is, or nothing is named.

    The same for what there is and the reader may not see.
    """
    match = request.resolver_match
    named = match.kwargs if match else {}
    if match is None or not request.user.is_authenticated or any("\x00" in str(value) for value in named.values()):
        return ""
    collection = named.get("name")
    collection_id = None if collection is None else find_collection_id(collection)
    if collection is not None and collection_id is None:
        return gettext("There is no collection %(collection)s.") % {"collection": collection}
    item = _find_missing(match.route, named, collection_id)
    if item is not None:
        values = {"kind": gettext(item[0]), "name": item[1], "collection": collection}
        if collection is None:
            return gettext("%(kind)s %(name)s is not there.") % values
        return gettext("%(kind)s %(name)s is not in collection %(collection)s.") % values
    return "" if collection_id is None else _spell_missing_document(collection_id, named)


def _find_missing(route: str, named: Mapping[str, Any], collection_id: int | None) -> tuple[str, str] | None:
    """(its kind, its name)."""
    for start, argument, model, kind in ITEMS:
        if argument not in named or not route.startswith(start):
            continue
        fields = {field.name for field in model._meta.get_fields()}
        conditions = {argument if argument in fields else "pk": named[argument]}
        if collection_id is not None and "collection" in fields:
            conditions["collection_id"] = collection_id
        if not model._default_manager.filter(**conditions).exists():
            return kind, str(named[argument])
    return None


def _spell_missing_document(collection_id: int, named: Mapping[str, Any]) -> str:
    values = {"collection": named["name"], "document": named.get("doc_id"), "index": named.get("index")}
    if values["document"] is None:
        return gettext("It is not in collection %(collection)s.") % values
    if not Document.objects.filter(collection_id=collection_id, doc_id=values["document"]).exists():
        return gettext("Document %(document)s is not in collection %(collection)s.") % values
    if values["index"] is not None:
        return gettext("Chunk %(index)s is not in document %(document)s.") % values
    return gettext("It is not in document %(document)s.") % values
