from __future__ import annotations

from tests.collections.conftest import committed, embeddings
from tests.fakes.openai_server import openai_server
from tests.fakes.s3_server import running_s3_server, s3_server

__all__ = ["committed", "embeddings", "openai_server", "running_s3_server", "s3_server"]
