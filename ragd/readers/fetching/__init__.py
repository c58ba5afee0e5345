"""Fetching over the net: which addresses may be asked, one request at a time, and what robots.txt allows.

Nothing here knows a model or a setting. `collections_app.sources.source_jobs` does the work of a job with it.
"""

from ragd.readers.fetching.addresses import Address, FetchError, Guard, Robots, doc_id_of, read_address
from ragd.readers.fetching.client import Answer, Deadline, FetchResult, Limits, request

__all__ = [
    "Address", "Answer", "Deadline", "FetchError", "FetchResult", "Guard", "Limits", "Robots", "doc_id_of",
    "read_address", "request",
]  # fmt: skip
