from __future__ import annotations

from tests.fakes.s3_server import running_s3_server, s3_server

__all__ = ["running_s3_server", "s3_server"]
