"""Which models are in use, what each costs, the source of that price, and what was spent in the last 30 days."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from django.contrib.auth.models import AnonymousUser, User
from django.urls import reverse

from collections_app.endpoints.endpoints import chat_endpoint
from collections_app.endpoints.prices import entered, find_cost, table_version
from collections_app.index.stores import embedder_for
from collections_app.models import Collection, ModelPrice
from evaluation_app.models import Span
from evaluation_app.telemetry.overview.figures import Consumption, FigureFilter, consumption, period_until
from evaluation_app.telemetry.overview.rollups import MODEL_TYPES
from ragd import telemetry

PERIOD = "30d"
SAMPLE = 1000  # tokens: a price that grows with the number of tokens is shown as it begins

Use = tuple[str, str, str]  # (operation, provider, model)


@dataclass(frozen=True, slots=True)
class PricedModel:
    """input, output: US dollars per million tokens, None where nobody prices them. is_tiered: more tokens cost more.

    source: "table", "override", "" for none. calls, spent_usd, tokens: in the period, as the overview counts them.
    system: "" where no span names it.
    """

    operation: str
    system: str
    model: str
    calls: int
    spent_usd: float
    unpriced_calls: int
    is_configured: bool
    tokens: int = 0
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
        address = reverse("evaluation:activity", args=["spans"])
        return f"{address}?{urlencode({'type': self.operation, 'model': self.model})}"

    @property
    def enter_href(self) -> str:
        """The form that enters a price for it."""
        query = urlencode({"system": self.system, "model": self.model})
        return f"{reverse('admin:collections_app_modelprice_add')}?{query}"


def priced_models() -> list[PricedModel]:
    """The configured models and those that were called in the period, by provider, model, operation.

    Raises DatabaseError.
    """
    entered.read()
    configured = set(_configured())
    rows = {row.name: row for row in consumption(FigureFilter(period_until(PERIOD)), "model") if row.name}
    uses = configured | _recent_uses(rows.keys() - {model for _, _, model in configured})
    unused = Consumption("", [], [], [])
    return [
        _priced(use, rows.get(use[2], unused), use in configured)
        for use in sorted(uses, key=lambda use: (use[1], use[2], use[0]))
    ]


def _recent_uses(models: Iterable[str]) -> set[Use]:
    """Operation and provider of the newest call of each model."""
    spans = Span.objects.filter(type__in=MODEL_TYPES, model__in=list(models)).order_by("model", "-started_at")
    return {
        (
            str(attributes.get(telemetry.OPERATION_NAME, "")),
            str(attributes.get(telemetry.PROVIDER_NAME, "")),
            model,
        )
        for model, attributes in spans.distinct("model").values_list("model", "attributes")
    }


def _configured() -> Iterable[Use]:
    models = Collection.objects.live().order_by().values_list("embed_model", "embed_dims").distinct()
    for model, dims in models:
        yield telemetry.EMBEDDINGS, embedder_for(model, dims).system, model
    answering = chat_endpoint()
    if answering is not None:
        yield telemetry.CHAT, telemetry.provider_of(urlsplit(answering.address).hostname), answering.model


def _priced(use: Use, calls: Consumption, is_configured: bool) -> PricedModel:
    operation, system, model = use
    unpriced = 0 if telemetry.is_local(system) else calls.calls - calls.priced
    tokens = calls.input_tokens + calls.output_tokens
    base = (operation, system, model, calls.calls, calls.cost_usd or 0.0, unpriced, is_configured, tokens)
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


def describe_prices(user: User | AnonymousUser) -> dict[str, Any]:
    """What the prices below the models show, to this reader."""
    rows = priced_models()
    return {
        "models": rows,
        "entered": list(ModelPrice.objects.all()),
        "table": table_version(),
        "spent": sum(row.spent_usd for row in rows),
        "unpriced": sum(row.unpriced_calls for row in rows),
        "may_enter": user.has_perm("collections_app.add_modelprice"),
    }
