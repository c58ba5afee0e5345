"""A single file inside gzip or bzip2: what is inside is read as itself."""

from __future__ import annotations

from ragd.readers.archives import decompress
from ragd.readers.assembly import Assembly, read_into
from ragd.readers.types import ParseError, Source

SUFFIXES = (".gz", ".gzip", ".bz2", ".bzip2")


def read(source: Source, assembly: Assembly) -> None:
    """Unpack and read; nesting is limited. Raises ParseError."""
    if source.depth >= source.limits.max_depth:
        raise ParseError("bomb", f"Compressed files are nested deeper than {source.limits.max_depth} levels.")
    content = decompress(source.data, source.media_type, source.limits)
    name = source.name
    for suffix in SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
            break
    inner = read_into(Source(content, name, "", source.limits, source.depth + 1), assembly)
    assembly.describe(unpacked_media_type=inner)
