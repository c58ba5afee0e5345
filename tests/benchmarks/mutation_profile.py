"""A pytest plugin for the copies that bench_mutation.py mutates: few examples, always the same, and none made smaller.

Which example kills a mutant does not matter, and to look for the smallest would take longer than all the tests. The
tests that were fastest without a mutant come first: most mutants get no further. Processes of mutants are forks of the
one that ran without any, and know its durations.
"""

from __future__ import annotations

import resource
from collections import Counter

import django
import pytest
from hypothesis import HealthCheck, Phase, settings

MEMORY_MAX = 4 << 30  # a mutant that never ends may collect for ever
SECONDS: Counter[str] = Counter()

resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
settings.register_profile(
    "mutation",
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("mutation")
django.setup()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid] += report.duration


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SECONDS[item.nodeid])
