"""Rows of a model by constant statements: what a queryset gives, where making its SQL again at each request costs more
than running it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, models
from psycopg.adapt import AdaptersMap
from psycopg.pq import Format
from pydantic_core import to_json

from ragd.store.store import fetch_all

Row = TypeVar("Row", bound=models.Model)


class Prepared:
    """A database of Django for constant statements, whose plans it keeps. Their parameters are sent beside them, so
    each has a type: one that its place does not say is cast in the text."""

    binds_on_server = True

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    @property
    def adapters(self) -> AdaptersMap:
        adapters: AdaptersMap = self._database.connection.adapters
        return adapters

    def cursor(self, *, binary: bool = False) -> Any:
        opened = self._database.cursor()
        opened.cursor.prepares, opened.cursor.format = True, Format(binary)
        return opened


prepared = Prepared(connection)


class RowReader(Generic[Row]):
    """One row of a model, as whoever asks may see it.

    `table` is its name with the alias, `columns` are all of it but those left out, which are deferred; `insert` adds
    one by the parameters of `values`, `named` are the fields by their names.
    """

    def __init__(self, model: type[Row], alias: str, *, without: str = "") -> None:
        fields: Sequence[models.Field[Any, Any]] = [f for f in model._meta.concrete_fields if f.attname != without]
        name, columns = model._meta.db_table, ", ".join(f'"{field.column}"' for field in fields)
        self.model, self.width, self._fields = model, len(fields), fields
        self.table, self.columns = f'"{name}" {alias}', ", ".join(f'{alias}."{field.column}"' for field in fields)
        # one parameter: binding each of many values costs more than to read them out of JSON
        row = f'jsonb_populate_record(NULL::"{name}", %(row)s::jsonb)'
        self.insert = f'INSERT INTO "{name}" ({columns}) SELECT {columns} FROM {row}'  # noqa: S608  (constants)
        self.named = {name: field for field in fields for name in (field.attname, field.name)}
        self._names = [field.attname for field in fields]
        self._key = next(place for place, field in enumerate(fields) if field.primary_key)
        self._converters = [
            (place, field.cached_col, convert)
            for place, field in enumerate(fields)
            for convert in field.get_db_converters(connection)
        ]

    def make(self, values: Sequence[Any]) -> Row | None:
        """The row of these values of `columns`; None where an outer join found none."""
        if values[self._key] is None:
            return None
        read = list(values)
        for place, column, convert in self._converters:
            read[place] = convert(read[place], column, connection)
        return self.model.from_db(DEFAULT_DB_ALIAS, self._names, read)

    def find(self, condition: str, params: Mapping[str, Any]) -> Row | None:
        """The row for which a constant condition over params holds; None where there is none, any of several."""
        sql = f"SELECT {self.columns} FROM {self.table} WHERE {condition} LIMIT 1"  # noqa: S608  (constants)
        return self.first(sql, params)

    def first(self, statement: str, params: Mapping[str, Any]) -> Row | None:
        """The first row that a statement returns as `columns`."""
        rows = fetch_all(prepared, statement, dict(params))
        return self.make(rows[0]) if rows else None

    def values(self, row: Row) -> dict[str, Any]:
        """The parameters of `insert` for a new row of JSON, texts, numbers, times and UUIDs. Raises ValueError for what
        JSON cannot hold."""
        values = {field.column: field.get_prep_value(field.pre_save(row, True)) for field in self._fields}
        return {"row": to_json(values).decode()}

    def assign(self, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """(what an UPDATE sets for these values by field, its parameters). KeyError for what is no field."""
        fields = {name: self.named[name] for name in values}
        text = ", ".join(f'"{field.column}" = %({name})s' for name, field in fields.items())
        return text, {name: field.get_db_prep_save(values[name], connection) for name, field in fields.items()}


_readers: dict[type[models.Model], RowReader[Any]] = {}


def reader_of(model: type[Row]) -> RowReader[Row]:
    """The reader of whole rows, alias "r"."""
    if model not in _readers:
        _readers[model] = RowReader(model, "r")
    return _readers[model]


def read_statements(module: str, **values: str) -> dict[str, str]:
    """The statements of a module, by name: each stands in the .sql file beside it, below a line `-- name`.

    module: its `__file__`. values: what `{name}` in the statements stands for; constants.
    """
    text = Path(module).with_suffix(".sql").read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return dict(part.split("\n", 1) for part in text.split("-- ")[1:])
