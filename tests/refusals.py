"""What a service refuses, as the API names it: by type and field, never by its sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from collections_app.errors import describe

E = TypeVar("E", bound=BaseException)


@contextmanager
def refuses(type: str, field: str | None = None, *names: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block raises an error of this `error.type` and `error.field`.

    names: numbers, states, names and settings that the message holds, where type and field do not tell the case.
    """
    with pytest.raises(Exception) as caught:
        yield caught
    error = describe(caught.value)[1]["error"]
    assert (error["type"], error.get("field")) == (type, field), caught.value
    assert [name for name in names if name not in error["message"]] == [], caught.value


@contextmanager
def raises_with(kind: type[E], /, match: str | None = None, **values: Any) -> Iterator[pytest.ExceptionInfo[E]]:
    """The block raises an error of this class whose attributes have these values."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert {name: getattr(caught.value, name) for name in values} == values, caught.value
