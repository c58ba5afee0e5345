"""Which tests `make check` chooses."""

from __future__ import annotations

from tools.nearest_tests import choose, distances, imported

SOURCES = {
    "ragd/search/fusion.py": "from ragd.types import (\n    Candidate,\n)\n",
    "ragd/search/__init__.py": "from . import fusion\n",
    "ragd/types.py": "import numpy\n",
    "retrieval_app/pipeline.py": 'from ragd.search import fusion\nTEMPLATE = "ask/page.html"\n',
    "tests/library/test_fusion.py": "import pytest\n",
    "tests/web/test_ask.py": "def test() -> None:\n    from retrieval_app.pipeline import TEMPLATE\n",
    "tests/library/test_words.py": "from ragd.types import Candidate\n",
    "tests/faults/test_kills.py": "import ragd.search.fusion\n",
}
KNOWN = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in SOURCES}


def test_imports_are_read_wherever_and_however_they_stand() -> None:
    found = {path: sorted(imported(path, text, KNOWN)) for path, text in SOURCES.items()}
    assert found["ragd/search/fusion.py"] == ["ragd/types.py"]
    assert found["ragd/search/__init__.py"] == ["ragd/search/__init__.py", "ragd/search/fusion.py"]
    assert found["retrieval_app/pipeline.py"] == ["ragd/search/__init__.py", "ragd/search/fusion.py"]
    assert found["tests/web/test_ask.py"] == ["retrieval_app/pipeline.py"]


def test_a_name_is_as_near_as_an_import_and_what_is_not_reached_is_left_out() -> None:
    assert distances({"ragd/search/fusion.py"}, SOURCES) == {
        "tests/library/test_fusion.py": 1,
        "tests/faults/test_kills.py": 1,
        "tests/web/test_ask.py": 2,
    }
    assert distances({"templates/ask/page.html"}, SOURCES) == {"tests/web/test_ask.py": 2}
    assert distances({"tests/library/test_words.py"}, SOURCES) == {"tests/library/test_words.py": 0}


def test_the_nearest_come_first_until_the_budget_is_spent() -> None:
    steps = {"tests/a.py": 2, "tests/b.py": 1, "tests/c.py": 1, "tests/d.py": 2, "tests/faults/e.py": 1}
    seconds = {"tests/a.py": 4.0, "tests/b.py": 5.0, "tests/c.py": 1.0, "tests/d.py": 3.0}
    assert choose(steps, seconds, budget_s=9.0) == ["tests/c.py", "tests/b.py", "tests/d.py"]
    assert choose(steps | {"tests/faults/e.py": 0}, seconds, budget_s=1.0) == ["tests/faults/e.py"]
