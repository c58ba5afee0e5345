"""What model calls cost, and what the calls of one piece of work cost together.

ragd keeps no prices: `configure(pricer=...)` brings them. What nobody can price has no cost, which is not a cost of 0.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Literal

from ragd.telemetry import names

LOCAL_PREFIX = "ragd."  # systems that run in this process: nobody is paid for their calls
CURRENCY = "USD"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars of one call. source: the kept table, an override of it, or what the provider itself reported.

    version: of the table, "" elsewhere. input_per_million, output_per_million: the prices that it comes from, None
    where they are not known or not one number each.
    """

    input: Annotated[float, names.COST_INPUT, "llm.cost.prompt"]
    output: Annotated[float, names.COST_OUTPUT, "llm.cost.completion"]
    source: Annotated[Literal["table", "override", "provider"], names.COST_SOURCE]
    version: str = ""
    input_per_million: Annotated[float | None, "aitf.cost.model_pricing.input_per_1m"] = None
    output_per_million: Annotated[float | None, "aitf.cost.model_pricing.output_per_1m"] = None

    @property
    def total(self) -> Annotated[float, names.COST_TOTAL, "llm.cost.total"]:
        return self.input + self.output

    @property
    def currency(self) -> Annotated[str, "aitf.cost.currency"]:
        return CURRENCY

    @property
    def table_version(self) -> Annotated[str | None, "ragd.cost.table_version"]:
        return self.version or None


# (system, model, input tokens, output tokens, those input tokens that were read from a cache) -> None when not known
Pricer = Callable[[str, str, int, int, int], Cost | None]

_pricer: Pricer | None = None


def use_pricer(pricer: Pricer | None) -> None:
    """Price the calls of this process from now on; None: none of them."""
    global _pricer
    _pricer = pricer


@dataclass(slots=True)
class Spending:
    """The model calls of one piece of work. Calls of models that run in this process are not among them, but for their
    tokens."""

    priced: int = 0
    unpriced: int = 0
    known_usd: float = 0.0
    tokens: int = 0

    @property
    def total_usd(self) -> float | None:
        """What all of them cost; None when there were none, or when the price of at least one is not known."""
        return self.known_usd if self.priced and not self.unpriced else None


_spendings: ContextVar[tuple[Spending, ...]] = ContextVar("ragd_spendings", default=())


@contextmanager
def spending() -> Iterator[Spending]:
    """Adds up the model calls that end inside, in this context and in copies of it. May be nested: each counts all."""
    mine = Spending()
    token = _spendings.set((*_spendings.get(), mine))
    try:
        yield mine
    finally:
        _spendings.reset(token)


def is_local(system: str) -> bool:
    """Whether the system is a part of ragd, such as the local embedder and the extractive answerer."""
    return system.startswith(LOCAL_PREFIX)


def price_call(
    system: str,
    models: tuple[str | None, ...],
    *,
    input_tokens: int,
    output_tokens: int = 0,
    cached_tokens: int = 0,
    is_billed: bool = True,
) -> Cost | None:
    """The cost by the first of the models that has a price, counted into every open `spending`.

    models: as it was asked for, then as the provider named what answered. is_billed False: nobody knows whether the
    call costs anything, as when it failed; its cost is unknown then. A pricer that raises knows no price.
    """
    if is_local(system):
        return None
    cost = _find_price(system, models, input_tokens, output_tokens, cached_tokens) if is_billed else None
    count_cost(cost)
    return cost


def count_tokens(tokens: int) -> None:
    """Count the tokens of one call, in and out, into every open `spending`."""
    for tally in _spendings.get():
        tally.tokens += tokens


def count_cost(cost: Cost | None) -> None:
    """Count one call into every open `spending`; None: a call whose cost nobody knows."""
    for tally in _spendings.get():
        if cost is None:
            tally.unpriced += 1
        else:
            tally.priced += 1
            tally.known_usd += cost.total


def _find_price(
    system: str, models: tuple[str | None, ...], input_tokens: int, output_tokens: int, cached_tokens: int
) -> Cost | None:
    if _pricer is None:
        return None
    try:
        for model in dict.fromkeys(filter(None, models)):
            cost = _pricer(system, model, input_tokens, output_tokens, cached_tokens)
            if cost is not None and math.isfinite(cost.total):
                return cost
    except Exception:
        log.exception("the cost of a call of %s could not be found; it has none", system)
    return None
