"""The words of the pages: times, durations, sizes, counts, trends, bars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from collections_app.domain import formats
from collections_app.templatetags import interface

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (9, "just now"), (59, "59 s ago"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
     (86400, "1 d ago"), (29 * 86400, "29 d ago"), (30 * 86400, "2026-01-30"), (-120, "in 2 min")],
)  # fmt: skip
def test_ago(seconds: int, said: str) -> None:
    assert interface.spell_ago(NOW - timedelta(seconds=seconds), NOW) == said


def test_ago_keeps_the_exact_time_in_the_markup() -> None:
    html = interface.ago(datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC))
    assert 'datetime="2026-03-01T12:00:05+00:00"' in html
    assert 'title="2026-03-01 12:00:05 UTC"' in html
    assert interface.ago(None) == "–"


@pytest.mark.parametrize(
    ("took_ms", "said"),
    [(None, "–"), ("", "–"), (0.1234, "0.12 ms"), (1.55, "1.6 ms"), (12.3, "12 ms"), (999, "999 ms"),
     (1234, "1.23 s"), (10_000, "10.0 s"), (119_900, "119.9 s"), (125_000, "2 min 5 s")],
)  # fmt: skip
def test_duration(took_ms: float | None, said: str) -> None:
    assert formats.duration(took_ms) == said


@pytest.mark.parametrize(
    ("size", "said"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (65_536, "65.5 kB"), (967_000, "967 kB"),
     (50_000_000, "50.0 MB"), (3 * 10**12, "3.0 TB")],
)  # fmt: skip
def test_size(size: int | None, said: str) -> None:
    assert formats.size(size) == said


def test_counts_agree_with_their_noun() -> None:
    assert formats.counted(0, "document") == "0 documents"
    assert formats.counted(1, "document") == "1 document"
    assert formats.counted(1234, "query,queries") == "1,234 queries"
    assert formats.number(1234567) == "1,234,567"
    assert formats.number(None) == "–"
    assert formats.percent(None) == "–"
    assert formats.percent(0.5) == "50 %"
    assert formats.score(None) == "–"


def test_a_sparkline_needs_something_to_draw() -> None:
    assert interface.sparkline([], "x") == ""
    assert interface.sparkline([1], "x") == ""
    assert interface.sparkline([0, 0, 0], "x") == ""
    assert interface.sparkline([2, None, 3], "x") == ""  # two points are no course
    assert "M0.0,26.0L48.0,14.0L96.0,2.0" in interface.sparkline([0, 1, 2], "x")
    assert "M0.0," in interface.sparkline([1, None, 2, 3], "x")


def test_a_score_bar_stays_within_its_bounds() -> None:
    assert 'width="100.0"' in interface.score_bar(1.7)
    assert 'width="0.0"' in interface.score_bar(-1)
    assert 'data-band="low"' in interface.score_bar(None)


def test_numbers_for_scripts_are_exact() -> None:
    assert formats.exactly(0.1 + 0.2) == "0.30000000000000004"
