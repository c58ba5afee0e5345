from __future__ import annotations

from typing import Any

import pytest

from tests.collections.conftest import committed, embeddings, notes
from tests.fakes.s3_server import running_s3_server, s3_server
from tests.fakes.web_server import web_server

__all__ = ["committed", "embeddings", "notes", "running_s3_server", "s3_server", "web_server"]

LOOPBACK = ["127.0.0.0/8", "::1/128"]


@pytest.fixture(autouse=True)
def open_loopback(settings: Any) -> None:
    """The loopback may be fetched from, and nobody rests between two requests."""
    settings.RAGD_FETCH_ALLOWED_NETWORKS = LOOPBACK
    settings.RAGD_FETCH_PAUSE_S = 0
    settings.RAGD_FETCH_TIMEOUT_S = 10
