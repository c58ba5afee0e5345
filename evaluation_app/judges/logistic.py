"""Ridge logistic regression by Newton's method, plain and repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
STEPS = 60
CLOSE = 1e-9
DECIMALS = 9


@dataclass(frozen=True, slots=True)
class Logistic:
    """P = 1 / (1 + exp(-(intercept + sum of coefficient * (value - mean) / scale))); one entry per name."""

    names: tuple[str, ...]
    coefficients: tuple[float, ...]
    intercept: float
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def predict(self, table: Numbers) -> Numbers:
        """table: (rows, names). One probability per row, inside 0 and 1."""
        if table.ndim != 2 or table.shape[1] != len(self.names):
            raise ValueError(f"a table of {len(self.names)} columns is needed, not one of shape {table.shape}")
        standard = (table - np.asarray(self.means)) / np.asarray(self.scales)
        return _sigmoid(standard @ np.asarray(self.coefficients) + self.intercept)

    def as_dict(self) -> dict[str, Any]:
        """Readable by `from_dict`; numbers are rounded to DECIMALS."""
        columns = {"coefficient": self.coefficients, "mean": self.means, "scale": self.scales}
        return {
            "intercept": round(self.intercept, DECIMALS),
            "features": {
                name: {column: round(values[index], DECIMALS) for column, values in columns.items()}
                for index, name in enumerate(self.names)
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Logistic:
        """Raises KeyError for a missing entry, ValueError for a scale that is not above 0 or a number that is none."""
        features = data["features"]

        def column(name: str) -> tuple[float, ...]:
            return tuple(float(entry[name]) for entry in features.values())

        model = cls(tuple(features), column("coefficient"), float(data["intercept"]), column("mean"), column("scale"))
        numbers = [model.intercept, *model.coefficients, *model.means, *model.scales]
        if not np.isfinite(numbers).all() or not all(scale > 0 for scale in model.scales):
            raise ValueError("coefficients and means must be finite numbers, scales above 0")
        return model


def fit_logistic(
    names: Sequence[str],
    table: Numbers,
    labels: npt.ArrayLike,
    *,
    ridge: float,
    weights: npt.ArrayLike | None = None,
) -> Logistic:
    """The coefficients that minimise (weighted log loss summed over rows) + ridge / 2 * (their squares, standardised).

    labels: 0 to 1, one per row. weights: above 0, scaled here to a mean of 1. The intercept is not penalised. A column
    that never changes gets the coefficient 0. Raises ValueError for no row, other shapes, a ridge that is not above 0.
    """
    truth = np.asarray(labels, dtype=np.float64)
    if table.ndim != 2 or table.shape != (len(truth), len(names)) or not len(truth):
        raise ValueError(f"a table of {len(names)} columns and as many rows as labels is needed, not {table.shape}")
    if ridge <= 0:
        raise ValueError(f"ridge must be above 0, not {ridge}")
    shares = np.ones(len(truth)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.mean()
    means, scales = table.mean(axis=0), table.std(axis=0)
    scales = np.where(scales > CLOSE, scales, 1.0)
    standard = np.column_stack([np.ones(len(truth)), (table - means) / scales])
    penalty = np.full(len(names) + 1, ridge)
    penalty[0] = 0.0
    beta = _newton(standard, truth, shares, penalty)
    return Logistic(tuple(names), tuple(map(float, beta[1:])), float(beta[0]), tuple(means), tuple(scales))


def _newton(table: Numbers, truth: Numbers, shares: Numbers, penalty: Numbers) -> Numbers:
    beta = np.zeros(table.shape[1])
    mean = float(np.clip(np.average(truth, weights=shares), 1e-6, 1 - 1e-6))
    beta[0] = np.log(mean / (1 - mean))
    loss = _loss(table, truth, shares, penalty, beta)
    for _ in range(STEPS):
        likely = _sigmoid(table @ beta)
        slope = table.T @ (shares * (likely - truth)) + penalty * beta
        curve = (table * (shares * np.maximum(likely * (1 - likely), 1e-12))[:, None]).T @ table + np.diag(penalty)
        step = np.linalg.solve(curve + CLOSE * np.eye(len(beta)), slope)
        size = 1.0
        while (now := _loss(table, truth, shares, penalty, beta - size * step)) > loss + CLOSE and size > 1e-6:
            size /= 2  # a whole step may overshoot far from the minimum
        beta = beta - size * step
        loss = now
        if np.abs(size * step).max() < CLOSE:
            break
    return beta


def _loss(table: Numbers, truth: Numbers, shares: Numbers, penalty: Numbers, beta: Numbers) -> float:
    score = table @ beta
    # log(1 + exp(score)) - truth * score, without overflow
    return float(shares @ (np.logaddexp(0.0, score) - truth * score) + (penalty * beta**2).sum() / 2)


def _sigmoid(score: Numbers) -> Numbers:
    positive: Numbers = 0.5 * (1 + np.tanh(np.clip(score, -60, 60) / 2))
    return positive
