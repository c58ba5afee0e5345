"""Runs as JSON Lines, for downloads and the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ninja import Schema

from evaluation_app.models import EvaluationRun
from evaluation_app.runs.schemas import EvaluationItemOut, EvaluationRunOut

CHUNK_ROWS = 50


def run_lines(run: EvaluationRun) -> Iterator[str]:
    """The run as JSON Lines: its header first, under "run", then each item, under "item", by position."""
    yield _line("run", EvaluationRunOut.from_orm(run))
    for item in run.items.order_by("position").iterator(chunk_size=CHUNK_ROWS):
        yield _line("item", EvaluationItemOut.from_orm(item))


def _line(name: str, value: Schema) -> str:
    values = value.model_dump(mode="json", exclude_unset=True)
    return json.dumps({name: values}, ensure_ascii=False, allow_nan=False) + "\n"
