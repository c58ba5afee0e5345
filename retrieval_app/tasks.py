"""The worker's door to search: a plan and a question go in, a stored run comes out under an id of the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from celery import shared_task

from collections_app.errors import ServiceError
from collections_app.services.collections.collections import get_collection
from ragd.errors import RagdError
from ragd.types import RetrievePlan
from retrieval_app.models import QueryRun
from retrieval_app.runs import query_pipeline


@shared_task(name="retrieval.run_search", ignore_result=True, acks_late=True)  # type: ignore[untyped-decorator]
def run_search(run_id: str, collection: str, query: str, plan: Mapping[str, Any], plan_name: str = "") -> None:
    """Search by the plan (`RetrievePlan.as_dict`) and keep the run as `run_id`; a run of that id is left alone.

    A refusal or a failure of the embedder is kept in the run, as by every door. Raises UnknownCollection and
    InvalidInput for a collection or plan of which there can be no run.
    """
    wanted = UUID(run_id)
    if QueryRun.objects.filter(pk=wanted).exists():
        return
    found, chosen = get_collection(collection), RetrievePlan.from_dict(plan)
    try:
        query_pipeline.search(found, query, chosen, door=QueryRun.Door.WORKER, plan_name=plan_name, run_id=wanted)
    except (RagdError, ServiceError):
        return  # the run says what failed
