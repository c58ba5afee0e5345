"""What a subcommand is."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collections_app.errors import ServiceError

Options = Mapping[str, Any]
Answer = dict[str, Any]

FAILED = 1
MISUSED = 2


class UsageError(ServiceError):
    """The command line names something that is not there or does not fit; exit status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type="usage", status=422)


@dataclass(frozen=True, slots=True)
class Subcommand:
    """run answers with plain data, which --json prints and `show` makes readable. has_passed False: exit status 1."""

    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Options], Answer]
    show: Callable[[Answer], str]
    has_passed: Callable[[Answer], bool] = lambda answer: True


def no_arguments(parser: ArgumentParser) -> None:
    """For a subcommand that takes none."""
