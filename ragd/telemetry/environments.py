"""Who spans are of: clients and people, evaluation, the playground, or the interface itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace

from ragd.telemetry import names

PRODUCTION = "production"
EVALUATION = "evaluation"
PLAYGROUND = "playground"
INTERFACE = "interface"
ENVIRONMENTS = (PRODUCTION, EVALUATION, PLAYGROUND, INTERFACE)

_environment: ContextVar[str] = ContextVar("ragd_environment", default="")


def current_environment() -> str:
    """That of the innermost `environment` around this code, "" outside of any."""
    return _environment.get()


@contextmanager
def environment(name: str, *, marks_parent: bool = True) -> Iterator[None]:
    """Every span that is opened inside is of this environment.

    marks_parent: so is the span that is open here, such as the request or the task that does the work. Raises
    ValueError for a name that is not in ENVIRONMENTS.
    """
    if name not in ENVIRONMENTS:
        raise ValueError(f"the environment must be one of {', '.join(ENVIRONMENTS)}, not {name!r}")
    parent = trace.get_current_span()
    if marks_parent and parent.is_recording():
        parent.set_attribute(names.ENVIRONMENT, name)
    token = _environment.set(name)
    try:
        yield
    finally:
        _environment.reset(token)
