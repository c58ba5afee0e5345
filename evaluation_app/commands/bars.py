"""Progress on standard error: a bar with rate and remaining time on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

from tqdm import tqdm

from collections_app.domain.units import MEGABYTE

LINE_EVERY_S = 5.0
FORMAT = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {unit} [{rate_fmt}, {remaining} left{postfix}]"


class Bar:
    """How far something is. Used as a context; `show` may be called as often as one likes.

    bytes_: what is counted are bytes. quiet: plain lines are left out, a bar on a terminal is not.
    """

    def __init__(self, what: str, unit: str, total: int = 0, *, bytes_: bool = False, quiet: bool = False) -> None:
        self.what = what
        self.unit = unit
        self.total = total
        self.done = 0
        self.quiet = quiet
        self.in_bytes = bytes_
        self.on_terminal = sys.stderr.isatty()
        self._began = self._said_at = time.monotonic()
        self._said = ""
        self._bar: Any = None
        if self.on_terminal:
            scale = {"unit_scale": True, "unit_divisor": 1000} if bytes_ else {}
            self._bar = tqdm(
                total=total or None,
                desc=what,
                unit=unit,
                file=sys.stderr,
                bar_format=FORMAT,
                dynamic_ncols=True,
                leave=False,
                **scale,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()
        elif kind is None and self._said and not self.quiet:
            self._say(self._line(), always=True)

    def show(self, done: int, total: int | None = None, note: str = "") -> None:
        """So much is done. total: when it has changed. note: a word at the end, such as "2 failed"."""
        self.done = done
        self.total = self.total if total is None else total
        if self._bar is not None:
            self._bar.total = self.total or None
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.n = done
            self._bar.refresh()
        elif not self.quiet:
            self._say(self._line(note))

    def say(self, line: str) -> None:
        """A line of its own, above the bar."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stderr)
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, note: str = "") -> str:
        passed_s = max(time.monotonic() - self._began, 0.001)
        line = f"{self.what}: {self._count(self.done)} of {self._count(self.total)} {self._unit}"
        if self.done and self.done < self.total:
            rate = self.done / passed_s
            shown = self._count(int(rate)) if rate >= 10 or self.in_bytes else f"{rate:,.1f}"
            line += f", {shown} {self._unit}/s, {(self.total - self.done) / rate:,.0f} s left"
        return f"{line}, {note}" if note else line

    @property
    def _unit(self) -> str:
        return self.unit if not self.in_bytes else "kB" if self.total < MEGABYTE else "MB"

    def _count(self, count: int) -> str:
        return f"{count / (1_000 if self._unit == 'kB' else MEGABYTE):,.1f}" if self.in_bytes else f"{count:,}"

    def _say(self, line: str, *, always: bool = False) -> None:
        now = time.monotonic()
        if line != self._said and (always or not self._said or now - self._said_at >= LINE_EVERY_S):
            print(line, file=sys.stderr, flush=True)
            self._said, self._said_at = line, now
