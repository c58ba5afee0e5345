"""A pytest plugin for the copies that bench_mutation.py mutates: few examples, always the same, and none made smaller.

Which example kills a mutant does not matter, and to look for the smallest would take longer than all the tests. The
tests that were fastest without a mutant come first: most mutants get no further. A test that takes five times the
processor time that it took without one, and a second more, ends the process by SIGPROF. Processes of mutants are forks
of the one that ran without any, and know its times. What asks a database is left out.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator

import django
import pytest
from hypothesis import HealthCheck, Phase, settings

MEMORY_MAX = 4 << 30  # a mutant that never ends may collect for ever
SECONDS: dict[str, float] = {}

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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_PROF, 1 + 5 * SECONDS[item.nodeid] if item.nodeid in SECONDS else 0)
    began = time.process_time()
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    SECONDS[item.nodeid] = time.process_time() - began


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if isinstance(item, pytest.Function) and "db" not in item.fixturenames]
    items.sort(key=lambda item: SECONDS.get(item.nodeid, 0.0))
