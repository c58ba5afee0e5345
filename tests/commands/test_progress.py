"""Progress: the plain lines where there is no terminal, and Ctrl-C while a command waits."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from collections_app.commands.ingest import show
from collections_app.commands.progress import Bar, heard_interrupts


@pytest.mark.parametrize(
    ("total", "line"),
    [(4_000, "check: 4.0 of 4.0 kB"), (2_500_000, "check: 2.5 of 2.5 MB"), (0, "check: 0.0 of 0.0 kB")],
)
def test_bytes_are_told_in_the_unit_that_fits(capsys: pytest.CaptureFixture[str], total: int, line: str) -> None:
    with Bar("check", "B", total, bytes_=True) as bar:
        bar.show(total)
    assert capsys.readouterr().err.splitlines() == [line]


def test_things_are_counted_whole(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar("chunks", "rows", 12_000) as bar:
        bar.show(12_000)
    assert capsys.readouterr().err.splitlines() == ["chunks: 12,000 of 12,000 rows"]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ({"documents": 0, "succeeded": 0, "unchanged": 0, "cancelled": 0}, []),
        ({"documents": 5, "succeeded": 4, "unchanged": 0, "cancelled": 1}, ["4 of 5 documents ingested, 1 cancelled"]),
        ({"documents": 2, "succeeded": 2, "unchanged": 1, "cancelled": 0},
         ["2 of 2 documents ingested, 1 of them unchanged"]),
    ],
)  # fmt: skip
def test_what_became_of_the_jobs_is_told(jobs: dict[str, int], said: list[str]) -> None:
    answer = {
        "collection": "notes", "totals": {"new": 1}, "items": [], "dry_run": False, "jobs": jobs, "failed": [],
        "note": "", "batches": [],
    }  # fmt: skip
    assert show(answer).splitlines() == ["notes: 1 new", *said]


def test_an_interrupt_that_was_swallowed_is_still_heard() -> None:
    before = signal.getsignal(signal.SIGINT)
    with heard_interrupts() as pressed:
        assert not pressed.is_set()
        with suppress(KeyboardInterrupt):  # as a destructor does
            os.kill(os.getpid(), signal.SIGINT)
        assert pressed.is_set()
    assert signal.getsignal(signal.SIGINT) is before
