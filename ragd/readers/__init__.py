"""Documents of any format to normalized text, read in a child process under limits.

`parse` is the way in; `iter_members` takes an archive apart, `archive_type` tells one; `sniff` names a format. Nothing
here imports Django.
"""

from __future__ import annotations

from ragd.readers.process.process import is_image, is_readable, iter_members, list_members, parse, stop_server, unlock
from ragd.readers.sniffing import archive_type, is_pointer, sniff
from ragd.readers.types import (
    ERROR_KINDS,
    Attachment,
    Member,
    PageLayout,
    ParsedDocument,
    ParseError,
    ParseLimits,
    Word,
)

__all__ = [
    "ERROR_KINDS", "Attachment", "Member", "PageLayout", "ParseError", "ParseLimits", "ParsedDocument", "Word",
    "archive_type", "is_image", "is_pointer", "is_readable", "iter_members", "list_members", "parse", "sniff",
    "stop_server", "unlock",
]  # fmt: skip
