"""The harness of `make bench BENCH=faults`: one cheap fault on a small set-up, and what its comparison sees."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from django.conf import settings
from psycopg import sql

from tests.databases import template_name
from tests.faults.fault_matrix import faults, matrix, model
from tests.faults.fault_matrix.faults import FAULTS, USUAL
from tests.faults.fault_matrix.full import Full
from tests.faults.fault_matrix.load import Load
from tests.faults.fault_matrix.setups import COLLECTION
from tests.faults.fault_matrix.verify import verify

NAME = f"ragd_faults_{os.getpid()}"
pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.fixture
def database() -> Iterator[str]:
    """A migrated database of its own."""
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as connection:
        name, template = sql.Identifier(NAME), sql.Identifier(template_name())
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
        yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{NAME}").geturl()
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_a_fault_is_survived_and_what_is_lost_or_doubled_is_seen(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix, "PAUSE_S", (0.1, 0.3))
    monkeypatch.setattr(faults, "MODEL_S", (0.5, 0.6))
    monkeypatch.setattr(model, "SLOW_S", 0.6)
    result = matrix.Result("model-slow", "full")
    with Full(USUAL, 1, database=database, broker="pgmq") as setup:
        load = Load(setup, 1)
        load.start()
        try:
            matrix.play(FAULTS["model-slow"], setup, load, random.Random(1), result, checks=False)
        finally:
            load.stop()
        assert result.words == [] and result.is_good
        assert (result.times, len(result.answers_s), len(result.work_s)) == (1, 1, 1)
        assert load.statuses["upload", 202] > 0 and load.statuses["search", 200] > 0 and load.statuses["ask", 200] > 0

        lost, doubled = sorted(load.expected)[:2]
        owner = "(SELECT id FROM collections WHERE name = %s)"
        setup.ask(
            f"UPDATE documents SET text = 'other' WHERE doc_id = '{lost}' AND collection_id = {owner} RETURNING 1",
            COLLECTION,
        )
        load.expected[doubled] = None
        load.run_ids.add("00000000-0000-4000-8000-000000000000")
        found = verify(setup, load, checks=False)
        assert [words.split()[0] for words in found.lost] == [lost, "1"]
        assert [words.split()[0] for words in found.doubled] == [doubled]


def test_every_fault_names_its_setups_and_can_say_why_it_is_missing() -> None:
    assert {setup for fault in FAULTS.values() for setup in fault.setups} == set(matrix.SETUPS)
    assert all(isinstance(fault.missing(), str) for fault in FAULTS.values())
