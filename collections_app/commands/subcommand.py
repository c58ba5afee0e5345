"""What a subcommand of `manage.py ragd` is, and the registry that finds those of all apps."""

from __future__ import annotations

import pkgutil
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from collections_app.errors import ServiceError
from ragd.errors import InvalidInput, RagdError

Options = Mapping[str, Any]
Answer = dict[str, Any]

FAILED = 1
MISUSED = 2
SHOWN_ROWS = 50
SHOWN_WORDS = 10


class UsageError(ServiceError):
    """The command line names something that is not there or does not fit; exit status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type="usage", status=422)


def no_arguments(parser: ArgumentParser) -> None:
    """For a subcommand that takes none."""


def has_passed(answer: Answer) -> bool:
    """Return False where the answer says so."""
    return bool(answer.get("passed", True))


def show_plainly(answer: Mapping[str, Any], indent: str = "") -> str:
    """Render plain data for a person: a line per value and per object of a list; empty values are left out."""
    lines = []
    for name, value in answer.items():
        title = f"{indent}{name.replace('_', ' ')}:"
        if isinstance(value, Mapping) and value:
            lines += [title, show_plainly(value, f"{indent}  ")]
        elif _is_table(value):
            lines += [title, *(_show_row(each, f"{indent}  ") for each in value[:SHOWN_ROWS])]
            lines += [f"{indent}  {_more(value, SHOWN_ROWS)}"] * (len(value) > SHOWN_ROWS)
        elif value not in (None, "", [], {}):
            lines.append(f"{title} {_show_value(value)}")
    return "\n".join(lines)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)


def _show_row(row: Mapping[str, Any], indent: str) -> str:
    """One line, or one for each value where it holds a table itself."""
    if any(_is_table(value) for value in row.values()):
        return show_plainly(row, indent)
    return f"{indent}{_show_value(row)}"


def _show_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_show_value(each)}" for name, each in value.items() if each not in (None, "", []))
    if isinstance(value, list):
        more = [_more(value, SHOWN_WORDS)] if len(value) > SHOWN_WORDS else []
        return " ".join([*map(_show_value, value[:SHOWN_WORDS]), *more])
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(round(value, 4)) if isinstance(value, float) else str(value)


def _more(values: list[Any], shown: int) -> str:
    return f"and {len(values) - shown:,} more; --json tells all"


@dataclass(frozen=True, slots=True)
class Subcommand:
    """run answers with plain data, which --json prints and `show` makes readable; None when it has printed by itself.

    has_passed False: exit status 1. needs_server: whether what pages set is read before it runs, which starts the
    embedded PostgreSQL.
    """

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Options], Answer | None]
    show: Callable[[Answer], str] = show_plainly
    has_passed: Callable[[Answer], bool] = has_passed
    needs_server: Callable[[Options], bool] = lambda options: True


def find_subcommands() -> dict[str, Subcommand]:
    """Collect `COMMANDS` of the module or package `commands` of every app, by name.

    The name is a verb, or a verb and its action such as "index rebuild".
    """
    subcommands: dict[str, Subcommand] = {}
    for module in _command_modules():
        subcommands |= getattr(module, "COMMANDS", {})
    return dict(sorted(subcommands.items()))


def _command_modules() -> Iterator[ModuleType]:
    for config in apps.get_app_configs():
        if config.module is not None and module_has_submodule(config.module, "commands"):
            package = import_module(f"{config.name}.commands")
            yield package
            for found in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
                yield import_module(found.name)


def split_pair(option: str, pair: str) -> tuple[str, str]:
    """ "year=2024" -> ("year", "2024"). Raises InvalidInput, which names the option."""
    key, equals, value = pair.partition("=")
    if not equals or not key:
        raise InvalidInput(f"--{option} takes KEY=VALUE, not {pair!r}", field=option)
    return key, value


@contextmanager
def as_usage() -> Iterator[None]:
    """What is refused inside is a wrong command line."""
    try:
        yield
    except (RagdError, ServiceError) as error:
        raise UsageError(error.message) from error
