"""Every test runs on a real PostgreSQL: that of DATABASE_URL, or the embedded one of RAGD_VAR (default var/test)."""

from __future__ import annotations

import gc
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpcore2
import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

REPOSITORY = Path(__file__).resolve().parent.parent
os.environ["DJANGO_SETTINGS_MODULE"] = "ragd_site.settings"
os.environ.setdefault("RAGD_VAR", str(REPOSITORY / "var" / "test"))
os.environ.setdefault("RAGD_LOG_LEVEL", "WARNING")
if sys.dont_write_bytecode:  # else each of the many processes of a run would compile the whole product
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["RAGD_VAR"] + "/bytecode"
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}

from ragd.models import openai_client  # noqa: E402
from ragd_site import embedded  # noqa: E402  (reads the environment set above)
from tests.fakes.openai_server import openai_server as openai_server  # noqa: E402
from tools.nearest_tests import WAITING  # noqa: E402

if TYPE_CHECKING:  # this file is read before Django is set up
    from collections_app.models import Collection

gc.disable()  # until all tests are collected: each look at all modules so far takes up to half a second
VAR = Path(os.environ["RAGD_VAR"])
DURATIONS = VAR / "durations.json"
SECONDS: Counter[str] = Counter()
# what an example costs depends on what else the machine does; speed is measured in benchmarks
hypothesis_settings.register_profile(
    "tests", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
if hypothesis_settings.get_current_profile_name() != "mutation":
    hypothesis_settings.load_profile("tests")
STARTED_HERE = False
# What judges the machine rather than a change, or reads everything there is: `make test-slow`.
SLOW = (
    "tests/backup/", "tests/browser/", "tests/cluster/", "tests/faults/", "tests/access/test_word_oracle.py",
    "tests/access/test_pages.py::test_every_page_of_the_own_collection[asker]",
    "tests/access/test_pages.py::test_every_page_of_the_own_collection[curator]",
    "tests/access/test_pages.py::test_every_page_of_the_own_collection[evaluator]",
    "tests/access/test_pages.py::test_every_page_of_the_own_collection[viewer]",
    "tests/collections/test_admin.py::test_every_model", "tests/collections/test_admin.py::test_nothing_of_a_foreign",
    "tests/collections/test_admin.py::test_no_foreign_row", "tests/collections/test_large_documents.py",
    "tests/commands/test_terminal.py", "tests/parsing/test_hostile.py", "tests/parsing/test_process.py",
    "tests/security/test_hostile.py", "tests/security/test_pattern_time.py", "tests/security/test_rotation.py",
    "tests/security/test_schema.py", "tests/security/test_secrets.py", "tests/security/test_static_checks.py",
    "tests/sign_on/test_single_sign_on.py", "tests/telemetry/test_sample.py", "tests/test_conformance_channels.py",
    "tests/test_database.py", "tests/test_packaging.py",
)  # fmt: skip
# what a newcomer does in a browser is tried with every change
EVERY_CHANGE = "tests/browser/test_flows.py::test_a_file_is_dropped_on_home_and_asked"


def start_cluster() -> bool:
    """Start the cluster without fsync, before a first connection starts it; whether it was not running before."""
    if os.environ.get("DATABASE_URL"):
        return False
    known = embedded.read_cluster(VAR)
    if known and embedded.answers(known):
        return False
    embedded.ensure_running(VAR, fsync=False)
    return True


def rotate_files(worker: int, workers: int) -> list[str]:
    """Each process reads the tests from another file on: what one has compiled, the others read."""
    files = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "tests").rglob("test_*.py"))
    start = len(files) * worker // workers
    return [*files[start:], *files[:start]]


def pytest_configure(config: pytest.Config) -> None:
    """Fast passwords, plain static files, no broker: a task runs where it is sent, after the commit."""
    global STARTED_HERE
    STARTED_HERE = start_cluster()
    if hasattr(config, "workerinput") and config.args == ["tests"]:
        config.args = rotate_files(int(config.workerinput["workerid"][2:]), config.workerinput["workercount"])
    import django
    from django.conf import settings

    settings.CELERY_TASK_ALWAYS_EAGER = True
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    }
    # each test's endpoint has a client of its own, and each client would read the certificates of all authorities
    httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)
    settings.STATIC_ROOT = VAR / "no-static"  # a server that a test starts may be filling the folder of RAGD_VAR
    settings.STATIC_ROOT.mkdir(exist_ok=True)  # WhiteNoise warns of a folder that is not there
    openai_client.BACKOFF_MAX_S = 0.2  # an endpoint that fails is asked five times: 0.5, 1, 2 and 4 s after each other
    django.setup()
    from collections_app.endpoints import endpoints, server_settings
    from retrieval_app.search import fallbacks
    from tests.databases import make_template, template_name
    from tests.embedding_memory import remember_vectors

    remember_vectors()
    keep_contexts_of_pages()
    endpoints.stored._read_at = server_settings.stored._read_at = 0.0  # no rows: a test without a database reads none
    fallbacks.AWAY_S = 0.0  # an embedder that fails in one test is there in the next
    endpoints.REFRESH_S = server_settings.REFRESH_S = math.inf  # a test that changes the rows says so
    if not hasattr(config, "workerinput"):
        make_template(settings.DATABASE_URL)
    settings.DATABASES["default"]["TEST"]["TEMPLATE"] = template_name()


def keep_contexts_of_pages() -> None:
    """A response of the test client has the contexts of the templates that a view renders, without a copy for each
    template that those include or extend."""
    from django.test import client

    store = client.store_rendered_templates

    def store_outermost(kept: dict[str, Any], *, template: Any, context: Any, **named: Any) -> None:
        if context.template is template:
            store(kept, template=template, context=context, **named)

    client.store_rendered_templates = store_outermost


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(SLOW) and item.nodeid != EVERY_CHANGE:
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """File by file, those first that mostly wait, so that the others run beside them; each file is handed out whole.

    In a file the tests that take `notes` as it was made for all of them stand behind those that do not know of it, and
    those that commit at the end.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", [])
        if "notes" in fixtures and "embeddings" in fixtures and not is_transactional(item):
            if "empty_notes" not in fixtures:  # parametrized tests share the list
                fixtures.insert(0, "empty_notes")

    def place(item: pytest.Item) -> tuple[bool, str, int]:
        shares = "empty_notes" in getattr(item, "fixturenames", ())
        return (
            not item.nodeid.startswith(WAITING),
            item.nodeid.partition("::")[0],
            2 if is_transactional(item) else int(shares),
        )

    items.sort(key=place)


def is_transactional(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("django_db")
    return "transactional_db" in getattr(item, "fixturenames", ()) or bool(marker and marker.kwargs.get("transaction"))


def pytest_collection_finish() -> None:
    """The modules and the tests stay to the end: the garbage collector looks at what came after them alone."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 100)  # a test keeps little, and what it keeps goes with it
    gc.enable()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep how long each file took, for `make check`."""
    if not hasattr(session.config, "workerinput"):
        known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
        DURATIONS.write_text(json.dumps(known | {name: round(seconds, 2) for name, seconds in SECONDS.items()}))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """A transactional test removes what it wrote instead of truncating every table."""
    from django.test import TransactionTestCase

    from tests.databases import Baseline

    with django_db_blocker.unblock():
        baseline = Baseline.read()
    TransactionTestCase._fixture_teardown = lambda case: baseline.restore()


@pytest.fixture(scope="module")
def module_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Keep what fixtures of module scope write; each test is rolled back to there, by a savepoint.

    Transactional tests of the module come last, and the first of them ends it.
    """
    from tests.databases import MODULE_TRANSACTION

    with django_db_blocker.unblock():
        MODULE_TRANSACTION.begin()
        yield
        MODULE_TRANSACTION.end()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if is_transactional(item):
        from tests.databases import MODULE_TRANSACTION

        MODULE_TRANSACTION.end()


@pytest.fixture(scope="module")
def house_of_module(module_db: None) -> Collection:
    from tests.retrieval.corpus import make_collection

    return make_collection()


@pytest.fixture
def house(house_of_module: Collection, db: None) -> Collection:
    """The collection of tests/retrieval/corpus.py, built once per module. What a test changes of it is rolled back."""
    return copy(house_of_module)


@pytest.fixture(scope="module")
def empty_notes(module_db: None) -> Collection:
    """What `notes` of tests/collections/conftest.py is, made once per module: its table and eight indexes take time.
    What a test changes of it is rolled back."""
    from django.test import override_settings

    from collections_app.collections.services import create_collection

    model = {"RAGD_EMBED_MODEL": "text-embedding-3-small", "RAGD_EMBED_DIMS": 32}
    with override_settings(**model, RAGD_EMBED_BASE_URL="http://127.0.0.1:1/v1", RAGD_EMBED_API_KEY="none"):
        return create_collection(name="notes")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Half surrogate pairs, which some tests log, cannot travel from a worker process of the test run."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    report.sections = [(name, content.encode(errors="backslashreplace").decode()) for name, content in report.sections]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing running that was not running before."""
    if STARTED_HERE and not hasattr(config, "workerinput"):
        from django.db import connections

        connections.close_all()
        embedded.stop(VAR)


@pytest.fixture
def ada(django_user_model: Any) -> Any:
    return django_user_model.objects.create_superuser("ada")
