"""Fetching over the net: which addresses may be asked, one request at a time, and what robots.txt allows.

Nothing here knows a model or a setting. `collections_app.services.sources.fetch_stage` does the work of a job with it.
"""

from collections_app.fetching.addresses import Address, Guard, doc_id_of, read_address
from collections_app.fetching.client import Answer, Deadline, FetchResult, request
from collections_app.fetching.errors import FetchError
from collections_app.fetching.robots import Robots

__all__ = [
    "Address", "Answer", "Deadline", "FetchError", "FetchResult", "Guard", "Robots", "doc_id_of", "read_address",
    "request",
]  # fmt: skip
