"""The download of a receipt."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpResponse, JsonResponse
from django.views.decorators.http import require_GET

from collections_app.errors import ServiceError
from collections_app.http.page_requests import PageRequest, find_or_404
from collections_app.services.governance.audit import record_event
from retrieval_app.models import QueryRun
from retrieval_app.receipts.receipts import make_receipt


@require_GET
def download_receipt(request: PageRequest, run_id: UUID) -> HttpResponse:
    """404 for a run that is not there, or was not answered."""
    try:
        receipt = make_receipt(find_or_404(QueryRun.objects.all(), pk=run_id))
    except ServiceError as error:
        raise Http404(error.message) from error
    record_event(None, "queryrun.receipt", f"downloaded the receipt of run {run_id}", subject_kind="queryrun")
    response = JsonResponse(receipt, json_dumps_params={"ensure_ascii": False, "indent": 1})
    response["Content-Disposition"] = f'attachment; filename="receipt-{run_id}.json"'
    return response
