"""Tests of the library run over a plain psycopg connection, those of writing over Django's too.

That both read the same is held by tests/test_no_drift.py and, over the whole suite, by test_conformance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection as django_connection

from ragd.store.store import Store
from ragd.store.tables import create_collection
from tests.builders import WordEmbedder

BOTH = ("test_indexing", "test_store")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    own = any(mark.args[0] == "connection" for mark in metafunc.definition.iter_markers("parametrize"))
    if "connection" in metafunc.fixturenames and not own:
        both = metafunc.module.__name__.endswith(BOTH)
        metafunc.parametrize("connection", ["psycopg", "django"] if both else ["psycopg"], indirect=True)


@pytest.fixture
def connection(request: pytest.FixtureRequest, db: None) -> Iterator[Any]:
    """A connection inside a transaction that is rolled back at the end."""
    if request.param == "django":
        yield django_connection
        return
    values = django_connection.get_connection_params()
    with psycopg.connect(
        host=values.get("host"), port=values.get("port"), user=values.get("user"),
        password=values.get("password"), dbname=values["dbname"],
    ) as plain:  # fmt: skip
        yield plain
        plain.rollback()


@pytest.fixture
def make_store(connection: Any) -> Callable[..., Store]:
    def make(name: str = "notes", *, dims: int = 32, exact_threshold: int = 20_000, **values: Any) -> Store:
        embedder = WordEmbedder(dims)
        create_collection(connection, name=name, embed_model=embedder.model, embed_dims=dims, **values)
        return Store(connection, name, embedder, exact_threshold=exact_threshold)

    return make
