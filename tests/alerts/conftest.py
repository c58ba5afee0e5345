from __future__ import annotations

from tests.fakes.web_server import web_server
from tests.fetching.conftest import open_loopback
from tests.web.conftest import bound, visitor

__all__ = ["bound", "open_loopback", "visitor", "web_server"]
