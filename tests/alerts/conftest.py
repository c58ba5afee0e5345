from __future__ import annotations

from tests.fakes.web_server import web_server
from tests.fetching.conftest import open_loopback
from tests.web.conftest import bound, module_visitor, visitor

__all__ = ["bound", "module_visitor", "open_loopback", "visitor", "web_server"]
