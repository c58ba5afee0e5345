"""One cluster for the tests of this folder, made when the first of them needs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster import nodes


@pytest.fixture(scope="session")
def cluster() -> Iterator[nodes.Cluster]:
    if why := nodes.missing():
        pytest.skip(why)
    nodes.build_engine()
    with tempfile.TemporaryDirectory(prefix="ragd-cluster-") as folder:
        made = nodes.Cluster(Path(folder))
        made.make()
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def environment(cluster: nodes.Cluster) -> Iterator[Mapping[str, str]]:
    """That of a server whose database is the cluster, migrated."""
    with tempfile.TemporaryDirectory(prefix="ragd-var-") as var:
        variables = os.environ | {"DATABASE_URL": cluster.url, "RAGD_VAR": var}
        migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
        subprocess.run(migrate, cwd=nodes.REPOSITORY, env=variables, check=True, capture_output=True)
        yield variables
