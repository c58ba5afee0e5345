"""Documents of any format to normalized text, read in a child process under limits.

`parse` is the way in; `iter_members` takes an archive apart, `archive_type` tells one; `sniff` names a format. Nothing
here imports Django.
"""

from __future__ import annotations

from collections_app.parsing.process.process import parse, stop_server
from collections_app.parsing.sniffing import archive_type, is_pointer, sniff
from collections_app.parsing.types import (
    ERROR_KINDS,
    Attachment,
    Member,
    PageLayout,
    ParsedDocument,
    ParseError,
    ParseLimits,
    Word,
)
from collections_app.parsing.unlocking import unlock
from collections_app.parsing.unpacking import is_image, is_readable, iter_members, list_members

__all__ = [
    "ERROR_KINDS",
    "Attachment",
    "Member",
    "PageLayout",
    "ParseError",
    "ParseLimits",
    "ParsedDocument",
    "Word",
    "archive_type",
    "is_image",
    "is_pointer",
    "is_readable",
    "iter_members",
    "list_members",
    "parse",
    "sniff",
    "stop_server",
    "unlock",
]
