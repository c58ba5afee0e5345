"""Which models are in use, what each costs, where that price comes from, and what was spent on it so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.conf import settings
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from collections_app.models import Collection, ModelPrice
from collections_app.pages import PageRequest, render_page
from collections_app.services.prices import entered, find_cost, table_version
from collections_app.stores import embedder_for
from evaluation_app.metrics.registry import Data, add_up
from evaluation_app.metrics.reporting import write_own
from evaluation_app.models import MetricSnapshot
from ragd import telemetry
from ragd.telemetry import metrics
from retrieval_app.answering import has_chat_model
from retrieval_app.chat_endpoint import OPENAI_URL

SAMPLE = 1000  # tokens: a price that grows with the number of tokens is shown as it begins

Use = tuple[str, str, str]  # (operation, provider, model)


@dataclass(frozen=True, slots=True)
class PricedModel:
    """input, output: US dollars per million tokens, None where nobody prices them. is_tiered: more tokens cost more.

    source: "table", "override", "" for none. calls, spent_usd: so far, over all processes.
    """

    operation: str
    system: str
    model: str
    calls: int
    spent_usd: float
    unpriced_calls: int
    is_configured: bool
    source: str = ""
    input: float | None = None
    output: float | None = None
    is_tiered: bool = False

    @property
    def is_local(self) -> bool:
        return telemetry.is_local(self.system)

    @property
    def was_paid(self) -> bool:
        """Whether any call of it had a price."""
        return not self.is_local and self.calls > self.unpriced_calls

    @property
    def calls_href(self) -> str:
        """The spans of its calls that are still kept."""
        return f"{reverse('evaluation:spans')}?{urlencode({'type': self.operation, 'model': self.model})}"

    @property
    def enter_href(self) -> str:
        """The form that enters a price for it."""
        asked = urlencode({"system": self.system, "model": self.model})
        return f"{reverse('admin:collections_app_modelprice_add')}?{asked}"


def priced_models() -> list[PricedModel]:
    """What is set up and what was ever asked, by provider, model, operation. Raises DatabaseError."""
    write_own()
    entered.read()
    counted = {data["name"]: data for data in add_up(MetricSnapshot.objects.values_list("data", flat=True))}
    calls, spent, unpriced = (
        _by_use(counted.get(metric.name)) for metric in (metrics.INFERENCE_REQUESTS, metrics.COST, metrics.UNPRICED)
    )
    configured = set(_configured())
    found = sorted(configured | set(calls), key=lambda use: (use[1], use[2], use[0]))
    return [
        _priced(use, int(calls.get(use, 0)), spent.get(use, 0.0), int(unpriced.get(use, 0)), use in configured)
        for use in found
    ]


def _by_use(data: Data | None) -> Mapping[Use, float]:
    sums: dict[Use, float] = defaultdict(float)
    for point in data["points"] if data else ():
        labels: Mapping[str, Any] = point["labels"]
        names = (telemetry.OPERATION_NAME, telemetry.PROVIDER_NAME, telemetry.REQUEST_MODEL)
        operation, system, model = (labels.get(name, "") for name in names)
        sums[operation, system, model] += point["value"]
    return sums


def _configured() -> Iterable[Use]:
    models = Collection.objects.live().order_by().values_list("embed_model", "embed_dims").distinct()
    for model, dims in models:
        yield telemetry.EMBEDDINGS, embedder_for(model, dims).system, model
    if has_chat_model():
        host = urlsplit(settings.RAGD_LLM_BASE_URL or OPENAI_URL).hostname
        yield telemetry.CHAT, telemetry.provider_of(host), settings.RAGD_LLM_MODEL


def _priced(use: Use, calls: int, spent: float, unpriced: int, is_configured: bool) -> PricedModel:
    operation, system, model = use
    base = (operation, system, model, calls, spent, unpriced, is_configured)
    writes = SAMPLE if operation == telemetry.CHAT else 0
    cost = find_cost(system, model, SAMPLE, writes, 0)
    if cost is None:
        return PricedModel(*base)
    million = 1_000_000 / SAMPLE
    return PricedModel(
        *base,
        source=cost.source,
        input=cost.input * million,
        output=cost.output * million if writes else None,
        is_tiered=cost.input_per_million is None,
    )


@require_GET
def prices_page(request: PageRequest) -> HttpResponse:
    rows = priced_models()
    context = {
        "models": rows,
        "entered": list(ModelPrice.objects.all()),
        "table": table_version(),
        "spent": sum(row.spent_usd for row in rows),
        "unpriced": sum(row.unpriced_calls for row in rows),
        "may_enter": request.user.has_perm("collections_app.add_modelprice"),
    }
    return render_page(request, "evaluation/prices.html", context)
