"""What models cost: the prices that this team entered, and the kept table behind them.

Spans price their calls through `find_cost`, which never asks the database on the way: a process keeps the entered
prices for REFRESH_S and reads them anew beside its work. A model of a server that nobody knows has no price.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from django.db import close_old_connections, connections, transaction

from collections_app.audit import services
from collections_app.errors import WrongValueError
from collections_app.models import ModelPrice
from ragd.telemetry import Cost, is_local

if TYPE_CHECKING:
    from genai_prices.types import ModelPrice as TablePrice

REFRESH_S = 15.0
FIRST_WAIT_S = 2.0
MILLION = 1_000_000
TABLE = "genai-prices"

# provider as spans name it -> as the table names it, where the two differ; any other name is the same in both
TABLE_PROVIDERS = {
    "azure.ai.openai": "azure", "azure.ai.inference": "azure", "mistral_ai": "mistral", "x_ai": "x-ai",
    "gcp.gemini": "google", "gcp.gen_ai": "google", "gcp.vertex_ai": "google", "aws.bedrock": "aws",
}  # fmt: skip
FIELDS = ("input_per_million", "output_per_million", "cached_input_per_million", "note")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rate:
    """US dollars per million tokens of one entered price. cached_input: of input tokens read from a cache."""

    input: float
    output: float
    cached_input: float

    def cost(self, input_tokens: int, output_tokens: int, cached_tokens: int) -> Cost:
        cached = min(cached_tokens, input_tokens)
        read = (input_tokens - cached) * self.input + cached * self.cached_input
        return Cost(
            read / MILLION,
            output_tokens * self.output / MILLION,
            "override",
            input_per_million=self.input,
            output_per_million=self.output,
        )


class EnteredPrices:
    """The rows of ModelPrice as this process last read them. (system, model) -> Rate; system "" holds for any."""

    def __init__(self) -> None:
        self.rates: Mapping[tuple[str, str], Rate] = {}
        self.read_at: float | None = None
        self._reading = threading.Lock()

    def find(self, system: str, model: str) -> Rate | None:
        """By system and model, else by model alone. The first call of a process waits FIRST_WAIT_S at most."""
        if self.read_at is None or time.monotonic() - self.read_at > REFRESH_S:
            self._refresh()
        return self.rates.get((system, model)) or self.rates.get(("", model))

    def read(self) -> None:
        """Read them now, over this thread's connection."""
        self.rates = {
            (row.system, row.model): Rate(
                row.input_per_million,
                row.output_per_million,
                row.input_per_million if row.cached_input_per_million is None else row.cached_input_per_million,
            )
            for row in ModelPrice.objects.all()
        }
        self.read_at = time.monotonic()

    def _refresh(self) -> None:
        """In a thread of its own: the caller may stand in a transaction, which a failed read would break."""
        if not self._reading.acquire(blocking=False):
            return
        is_first = self.read_at is None
        thread = threading.Thread(target=self._read_beside, name="ragd-prices", daemon=True)
        thread.start()
        if is_first:
            thread.join(FIRST_WAIT_S)

    def _read_beside(self) -> None:
        try:
            close_old_connections()
            self.read()
        except Exception as error:
            self.read_at = time.monotonic()  # not again at every call
            log.warning("the entered prices could not be read; those known before hold: %s", error)
        finally:
            connections.close_all()
            self._reading.release()


entered = EnteredPrices()


def find_cost(system: str, model: str, input_tokens: int, output_tokens: int, cached_tokens: int) -> Cost | None:
    """The `telemetry.Pricer` of the server: an entered price, else the table's, else None."""
    if is_local(system):
        return None
    rate = entered.find(system, model)
    if rate is not None:
        return rate.cost(input_tokens, output_tokens, cached_tokens)
    return _table_cost(system, model, input_tokens, output_tokens, cached_tokens)


@lru_cache(maxsize=1)
def table_version() -> str:
    """Which table it is, such as "genai-prices 0.2.3"."""
    return f"{TABLE} {version(TABLE)}"


@lru_cache(maxsize=1)
def table_providers() -> frozenset[str]:
    """The providers whose prices the table holds. The table itself takes "openai_compatible" for "openai"."""
    from genai_prices.data_snapshot import get_snapshot  # 1.6 MB of tables: only for who asks a model elsewhere

    return frozenset(provider.id for provider in get_snapshot().providers)


def _table_cost(system: str, model: str, input_tokens: int, output_tokens: int, cached_tokens: int) -> Cost | None:
    """By provider and model. A provider is needed: the same model has another price, or none, in another house."""
    provider = TABLE_PROVIDERS.get(system, system)
    if provider not in table_providers():
        return None
    from genai_prices import Usage, calc_price

    cached = min(cached_tokens, input_tokens)
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached)
    try:
        result = calc_price(usage, model, provider_id=provider)
    except (LookupError, ValueError):  # not known; known without a price for what was used
        return None
    price = result.model_price
    if price.input_mtok is None or (output_tokens and price.output_mtok is None):
        return None
    return Cost(
        float(result.input_price),
        float(result.output_price),
        "table",
        table_version(),
        input_per_million=_plain(price, "input_mtok"),
        output_per_million=_plain(price, "output_mtok"),
    )


def _plain(price: TablePrice, field: str) -> float | None:
    """A price that is one number; None for none and for tiers."""
    value: Any = getattr(price, field)
    return None if value is None or hasattr(value, "tiers") else float(value)


def save_price(
    model: str,
    *,
    system: str = "",
    input_per_million: float,
    output_per_million: float = 0.0,
    cached_input_per_million: float | None = None,
    note: str = "",
    actor: services.Actor,
) -> ModelPrice:
    """Enter the price of a model, or change it. system: "" for whoever serves it. Raises ServiceError (422)."""
    values = (input_per_million, output_per_million, cached_input_per_million)
    check_price(model, system, *values)
    with transaction.atomic():
        named = ModelPrice.objects.filter(system=system.strip(), model=model.strip())
        before = named.values(*FIELDS).first()
        row, is_new = ModelPrice.objects.update_or_create(
            system=system.strip(), model=model.strip(), defaults=dict(zip(FIELDS, (*values, note), strict=True))
        )
        message = f"price {input_per_million:g} and {output_per_million:g} US dollars per million tokens"
        services.record(
            actor,
            [row],
            services.ADDITION if is_new else services.CHANGE,
            message,
            before=before,
            after={name: getattr(row, name) for name in FIELDS},
        )
        transaction.on_commit(entered.read, robust=True)
    return row


def check_price(
    model: str, system: str, input_per_million: float, output_per_million: float, cached_input_per_million: float | None
) -> None:
    """Raise ServiceError (422) with the field that no price can have."""
    if not model.strip():
        raise WrongValueError("model must be the name that the model is asked for by; it is empty", "model")
    if is_local(system):
        raise WrongValueError(f"{system} runs in this server, and nobody is paid for it; leave its price out", "system")
    values = (input_per_million, output_per_million, cached_input_per_million)
    for field, value in zip(FIELDS, values, strict=False):
        if value is not None and not 0 <= value < float("inf"):
            raise WrongValueError(f"{field} must be US dollars per million tokens, 0 or more, not {value!r}", field)


def delete_price(row: ModelPrice, *, actor: services.Actor) -> None:
    """Take an entered price back: the table's holds again, if it has one."""
    with transaction.atomic():
        services.record(
            actor,
            [row],
            services.DELETION,
            f"price of {row} taken back",
            before={name: getattr(row, name) for name in FIELDS},
        )
        row.delete()
        transaction.on_commit(entered.read, robust=True)
