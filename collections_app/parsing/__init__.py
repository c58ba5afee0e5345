"""Documents of any format to normalized text, read in a child process under limits.

`parse` is the door; `sniff` names a format; `expand_archive` takes an archive apart. Nothing here imports Django.
"""

from __future__ import annotations

from collections_app.parsing.archives import Member, expand_archive
from collections_app.parsing.process import parse, stop_server
from collections_app.parsing.sniffing import sniff
from collections_app.parsing.types import ERROR_KINDS, Attachment, ParsedDocument, ParseError, ParseLimits

__all__ = [
    "ERROR_KINDS",
    "Attachment",
    "Member",
    "ParseError",
    "ParseLimits",
    "ParsedDocument",
    "expand_archive",
    "parse",
    "sniff",
    "stop_server",
]
