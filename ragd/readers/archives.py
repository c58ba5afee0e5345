"""ZIP and TAR, opened with limits on members, sizes, ratio and paths, and read as streams that count what they give."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Protocol

from ragd.readers import signatures as types
from ragd.readers import sniffing
from ragd.readers.text.charsets import decode
from ragd.readers.types import MEBIBYTE, Member, ParseError, ParseLimits

READ_BYTES = 256 * 1024
RATIO_FREE_BYTES = 8 * MEBIBYTE
NAME_CHARS = 1000
DOS_LETTERS = frozenset(bytes([*range(0x80, 0x9B), *range(0xA0, 0xA6), 0xE1]).decode("cp437"))


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Package:
    """A ZIP file whose directory passed the checks. Reading any member counts towards one total.

    Names are looked up as they are and, failing that, without regard to case or a leading slash.
    """

    def __init__(self, data: bytes, limits: ParseLimits, media_type: str = sniffing.ZIP_TYPE) -> None:
        """media_type: what the file is to people."""
        self._limits = limits
        self._media_type = media_type
        self._read_bytes = 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            self._entries = self._zip.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, UnicodeError, OverflowError) as error:
            raise self._damaged(str(error)) from error
        _check_directory(self._entries, len(data), limits)
        self._by_name = {entry.filename: entry for entry in self._entries}
        self._by_folded = {_fold(entry.filename): entry for entry in self._entries}

    @property
    def names(self) -> list[str]:
        return [entry.filename for entry in self._entries if not entry.is_dir()]

    @property
    def entries(self) -> list[zipfile.ZipInfo]:
        return self._entries

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def read(self, name: str) -> bytes:
        """The bytes of a member. KeyError when there is none; ParseError when it is encrypted, damaged or too large."""
        entry = self._find(name)
        if entry is None:
            raise KeyError(name)
        return self.read_entry(entry)

    def read_entry(self, entry: zipfile.ZipInfo) -> bytes:
        if entry.flag_bits & 0x1:
            raise ParseError("encrypted", "The archive is locked by a password. Upload it without one.")
        try:
            with self._zip.open(entry) as stream:
                content = read_limited(stream, self._limits, already=self._read_bytes)
        except ParseError:
            raise
        except (RuntimeError, NotImplementedError, *sniffing.UNPACK_ERRORS) as error:
            raise self._damaged(f"{entry.filename[:200]!r} cannot be unpacked: {error}") from error
        self._read_bytes += len(content)
        return content

    def _damaged(self, reason: str) -> ParseError:
        what = types.speak(self._media_type)
        return ParseError("broken", f"This is {what} that is damaged or incomplete ({reason}). Upload a whole copy.")

    def _find(self, name: str) -> zipfile.ZipInfo | None:
        return self._by_name.get(name) or self._by_folded.get(_fold(name))


def read_limited(stream: Readable, limits: ParseLimits, *, already: int = 0) -> bytes:
    """All of a stream, counted as it comes. ParseError "bomb" beyond max_unpacked_mb (less what was read before)."""
    allowed = limits.max_unpacked_mb * MEBIBYTE - already
    pieces: list[bytes] = []
    while piece := stream.read(READ_BYTES):
        allowed -= len(piece)
        if allowed < 0:
            raise _too_much(limits)
        pieces.append(piece)
    return b"".join(pieces)


def decompress(data: bytes, media_type: str, limits: ParseLimits) -> bytes:
    """The content of a gzip or bzip2 file, limited like an archive."""
    raw = io.BytesIO(data)
    try:
        with gzip.open(raw) if media_type == sniffing.GZIP_TYPE else bz2.open(raw) as stream:
            return read_limited(stream, limits)
    except sniffing.UNPACK_ERRORS as error:
        raise ParseError(
            "broken",
            f"The compressed file cannot be unpacked ({error}). It is cut off or damaged; upload a whole copy.",
        ) from error


def expand_archive(data: bytes, limits: ParseLimits, *, media_type: str = "") -> Iterator[Member]:
    """The files of a ZIP or TAR (also inside gzip or bzip2), one at a time, in the archive's order, in this process.

    Archives inside are unpacked too, down to max_depth, as "outer.zip/inner/file". Folders, links, devices and what
    file managers leave behind are skipped. More members or bytes than the limits allow raise ParseError "bomb"; a
    container that cannot be read raises "broken". One member that is encrypted, damaged, too large for a document,
    named like one before, or whose path is absolute or climbs with "..", comes with its error and no bytes.
    """
    yield from _Expansion(limits).members(data, media_type, prefix="", depth=0)


class _Expansion:
    """One expansion with one count of members and bytes over all nested archives."""

    def __init__(self, limits: ParseLimits) -> None:
        self.limits = limits
        self.count = 0
        self.total_bytes = 0
        self.names: set[str] = set()

    def members(self, data: bytes, media_type: str, prefix: str, depth: int) -> Iterator[Member]:
        kind = media_type or sniffing.packed_type(data)
        if kind in sniffing.COMPRESSED_TYPES:
            data = decompress(data, kind, self.limits)
            kind = sniffing.packed_type(data)
        if kind == sniffing.ZIP_TYPE:
            result = self._zip_members(data)
        elif kind == sniffing.TAR_TYPE:
            result = self._tar_members(data)
        else:
            raise ParseError("unsupported", "A ZIP or TAR archive was expected, but the content is neither.")
        for name, content in result:
            path = prefix + name
            if isinstance(content, ParseError):
                yield Member(path, error=content)
            elif not sniffing.archive_type(content, name):
                yield self._member(path, content)
            elif depth + 1 < self.limits.max_depth:
                yield from self._nested(path, content, depth + 1)
            else:
                raise ParseError(
                    "bomb",
                    f"Archives are nested deeper than {self.limits.max_depth} levels at {path!r}. Extract it first.",
                )

    def _nested(self, path: str, content: bytes, depth: int) -> Iterator[Member]:
        """The members of an archive inside; one that cannot be read is one member's error."""
        try:
            yield from self.members(content, "", f"{path}/", depth)
        except ParseError as error:
            if error.kind == "bomb":
                raise
            yield Member(path, error=error)

    def _member(self, path: str, content: bytes) -> Member:
        if path in self.names:
            return Member(
                path,
                error=ParseError("broken", f"The archive holds {path[:200]!r} more than once. The first was taken."),
            )
        self.names.add(path)
        if len(content) > self.limits.max_input_mb * MEBIBYTE:
            return Member(path, error=_too_large(len(content), self.limits))
        return Member(path, content, size_bytes=len(content))

    def _zip_members(self, data: bytes) -> Iterator[tuple[str, bytes | ParseError]]:
        package = Package(data, self.limits)
        for entry in package.entries:
            if entry.is_dir():
                continue
            raw_name = member_name(entry)
            try:
                name = clean_path(raw_name)
            except ParseError as error:
                self._counted(b"")
                yield raw_name[:NAME_CHARS], error
                continue
            if not name or _is_left_behind(name):
                continue
            try:
                content = package.read_entry(entry)
            except ParseError as error:
                if error.kind == "bomb":
                    raise
                self._counted(b"")
                yield name, error
                continue
            yield name, self._counted(content)

    def _tar_members(self, data: bytes) -> Iterator[tuple[str, bytes | ParseError]]:
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                for entry in archive:
                    if not entry.isreg():
                        self._counted(b"")
                        continue
                    try:
                        name = clean_path(entry.name)
                    except ParseError as error:
                        self._counted(b"")
                        yield entry.name[:NAME_CHARS], error
                        continue
                    stream = archive.extractfile(entry) if name and not _is_left_behind(name) else None
                    if stream is not None:
                        yield name, self._counted(read_limited(stream, self.limits, already=self.total_bytes))
        except sniffing.UNPACK_ERRORS as error:
            raise ParseError("broken", f"The TAR archive cannot be read ({error}). Upload a whole copy.") from error

    def _counted(self, content: bytes) -> bytes:
        self.count += 1
        self.total_bytes += len(content)
        if self.count > self.limits.max_members:
            raise _too_many(self.count, self.limits)
        if self.total_bytes > self.limits.max_unpacked_mb * MEBIBYTE:
            raise _too_much(self.limits)
        return content


def member_name(entry: zipfile.ZipInfo) -> str:
    """The name of a member. One that is not marked as UTF-8 is that, or of code page 437, or what it clearly shows."""
    if entry.flag_bits & 0x800 or entry.filename.isascii():
        return entry.filename
    try:
        raw = entry.filename.encode("cp437")
    except UnicodeEncodeError:
        return entry.filename
    decoded = decode(raw)
    if decoded.charset == "utf-8":
        return decoded.text
    high = [sign for sign in entry.filename if not sign.isascii()]
    is_dos = all(sign in DOS_LETTERS for sign in high)
    # Bytes of Asian charsets are letters here too, but every other one at least.
    letters = sum(sign.isascii() and sign.isalpha() for sign in entry.filename.rpartition(".")[0] or entry.filename)
    is_latin = decoded.charset.startswith(("cp125", "iso8859"))
    return entry.filename if is_dos and (is_latin or 2 * len(high) <= letters) else decoded.text


def clean_path(name: str) -> str:
    """The path with "/" between its parts. ParseError "bomb" for an absolute path or one that climbs out."""
    path = name.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    drive = bool(parts) and len(parts[0]) == 2 and parts[0][1] == ":"
    if path.startswith("/") or drive or ".." in parts or len(path) > NAME_CHARS:
        raise ParseError(
            "bomb",
            f"The archive holds the path {name[:200]!r}, which is absolute, climbs out of the archive or is too long."
            " Pack it again with plain relative paths.",
        )
    return "/".join(parts)


def _is_left_behind(name: str) -> bool:
    parts = name.split("/")
    return parts[0] == "__MACOSX" or parts[-1] in (".DS_Store", "Thumbs.db", "desktop.ini")


def _fold(name: str) -> str:
    return name.replace("\\", "/").lstrip("/").lower()


def _check_directory(entries: list[zipfile.ZipInfo], packed_bytes: int, limits: ParseLimits) -> None:
    if len(entries) > limits.max_members:
        raise _too_many(len(entries), limits)
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > limits.max_unpacked_mb * MEBIBYTE:
        raise _too_much(limits, unpacked)
    if unpacked > RATIO_FREE_BYTES and unpacked > limits.max_ratio * packed_bytes:
        raise ParseError(
            "bomb",
            f"The archive of {packed_bytes:,} bytes would expand to {unpacked:,}, more than {limits.max_ratio} times"
            " its size. Upload the files one by one if they are genuine.",
        )


def _too_large(size_bytes: int, limits: ParseLimits) -> ParseError:
    return ParseError(
        "too_large",
        f"The file has {size_bytes:,} bytes; at most {limits.max_input_mb} MB are read. Split it, or raise the limit.",
    )


def _too_many(count: int, limits: ParseLimits) -> ParseError:
    return ParseError(
        "bomb", f"The archive has {count:,} members; at most {limits.max_members:,} are accepted. Split it."
    )


def _too_much(limits: ParseLimits, unpacked: int | None = None) -> ParseError:
    size = f"{unpacked:,} bytes" if unpacked else f"more than {limits.max_unpacked_mb} MB"
    return ParseError(
        "bomb", f"The archive unpacks to {size}; at most {limits.max_unpacked_mb} MB are accepted. Split it."
    )
