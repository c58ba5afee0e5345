"""An export as it is read: refused with a sentence unless it is whole, of this format and within the limits.

Everything that the file says of itself is checked here, member by member and byte by byte, before a row is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import numpy as np
import numpy.typing as npt
from django.conf import settings

from collections_app.access.document_access import check_access_from
from collections_app.chunks.finding_scan import check_security
from collections_app.chunks.policies import check_policy
from collections_app.collections.export_parts import (
    CHUNKS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    MANIFEST_MAX_BYTES,
    OWN_MEMBERS,
    SETTINGS,
    SOURCES,
    UPLOADS,
    VECTORS,
    VECTORS_AT_ONCE,
    Manifest,
    Member,
    Row,
    invalid_export,
    registered_parts,
)
from collections_app.collections.retention import check_retention
from collections_app.domain.formats import MEGABYTE
from collections_app.errors import ServiceError
from ragd.errors import InvalidInput
from ragd.identity import clean_collection_title, clean_starters
from ragd.types import SPEC_VERSION

Source = str | os.PathLike[str] | BinaryIO

READ_BYTES = 1 << 20
LINE_PER_DOCUMENT = 12  # a line holds a document's text, escaped, with maps over it and earlier chunks
INDEX_VERSION_FIELDS = (
    "hash", "spec_version", "policy", "chunk_policy", "embed_model", "embed_dims", "hybrid_enabled", "language",
)  # fmt: skip
STATISTICS_FIELDS = ("chunks", "length_total", "length_baked", "terms")
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)


class Archive:
    """An opened export. `check` reads all of it once; after that its members can be read as often as it takes."""

    def __init__(self, source: Source) -> None:
        try:
            self.file = zipfile.ZipFile(source)
        except FileNotFoundError as error:
            raise invalid_export(f"there is no file {error.filename}") from None
        except BROKEN as error:
            raise invalid_export(
                f"this is no complete ZIP file ({error}); an export of ragd is one. It may have been cut off on its "
                "way: export the collection again"
            ) from None
        with self._closing_on_error():
            self.manifest = self._read_manifest()
            self._check_entries()

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_manifest(self) -> Manifest:
        try:
            info = self.file.getinfo(MANIFEST)
        except KeyError:
            raise invalid_export(
                f"this ZIP file has no {MANIFEST}, so it is no export of ragd; files to be indexed are uploaded instead"
            ) from None
        if info.file_size > MANIFEST_MAX_BYTES:
            raise invalid_export(f"{MANIFEST} has {info.file_size} bytes; at most {MANIFEST_MAX_BYTES} are taken")
        try:
            with self.file.open(info) as opened:
                values = json.loads(opened.read(MANIFEST_MAX_BYTES + 1))
        except (*BROKEN, ValueError, RecursionError) as error:
            raise invalid_export(f"{MANIFEST} cannot be read ({error}); the file is damaged") from None
        return read_manifest_values(values)

    def _check_entries(self) -> None:
        """The ZIP's own directory: exactly the members that the manifest names, of their sizes, plainly packed."""
        infos = self.file.infolist()
        names = [info.filename for info in infos]
        requested = {MANIFEST, *self.manifest.members}
        if len(set(names)) != len(names) or set(names) != requested:
            odd = sorted(set(names) ^ requested)
            raise invalid_export(
                f"the file's members are not those of its manifest ({', '.join(odd[:5]) or 'one comes twice'}); "
                "it was changed after it was exported"
            )
        for info in infos:
            if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise invalid_export(f"{info.filename} is encrypted or packed in a way that exports never use")
            member = self.manifest.members.get(info.filename)
            if member is not None and info.file_size != member.bytes:
                raise invalid_export(
                    f"{info.filename} has {info.file_size} bytes, and the manifest says {member.bytes}; "
                    "the file is damaged"
                )
        total, limit = sum(info.file_size for info in infos), settings.RAGD_IMPORT_MAX_MB
        if total > limit * MEGABYTE:
            raise ServiceError(
                f"unpacked the file has {total / MEGABYTE:,.0f} MB; at most {limit:,} MB are taken. "
                "Raise RAGD_IMPORT_MAX_MB if you trust it.",
                type="too_large",
                status=413,
                field="file",
            )

    def check(self, tell: Callable[[int, int], object] = lambda done, total: None) -> None:
        """Read every member and compare it with its hash. tell(done, total): bytes. Raises ServiceError 422."""
        total, done = sum(member.bytes for member in self.manifest.members.values()), 0
        for member in self.manifest.members.values():
            digest, size = hashlib.sha256(), 0
            with self.open(member.name) as opened, _reading(member.name):
                while part := opened.read(READ_BYTES):
                    size += len(part)
                    if size > member.bytes:
                        break
                    digest.update(part)
                    done += len(part)
                    tell(done, total)
            if size != member.bytes or digest.hexdigest() != member.sha256:
                raise invalid_export(
                    f"{member.name} is not what was exported: its SHA-256 differs from the manifest's; the file is "
                    "damaged"
                )

    def open(self, name: str) -> BinaryIO:
        with _reading(name):
            return self.file.open(name)  # type: ignore[return-value]

    def rows(self, name: str) -> Iterator[Row]:
        """The objects of a member of JSON Lines, in order."""
        member = self.manifest.members[name]
        longest = max(64, LINE_PER_DOCUMENT * settings.RAGD_MAX_DOCUMENT_MB) * MEGABYTE
        with self.open(name) as opened, io.BufferedReader(opened, READ_BYTES) as lines:  # type: ignore[type-var]
            for number in range(1, member.rows + 1):
                with _reading(name):
                    line = lines.readline(longest)
                yield _read_row(line, name, number)
            if lines.read(1):
                raise invalid_export(f"{name} has more than the {member.rows} lines that the manifest counts")

    def vectors(self) -> Iterator[npt.NDArray[np.float32]]:
        """One float32 vector per chunk, in the order of the chunks, each of embed_dims entries."""
        count = self.manifest.members[VECTORS].rows
        dims = int(self.manifest.collection["embed_dims"])
        with self.open(VECTORS) as opened, _reading(VECTORS):
            self._check_header(opened, count, dims)
            for first in range(0, count, VECTORS_AT_ONCE):
                requested = min(VECTORS_AT_ONCE, count - first)
                raw = opened.read(requested * dims * 4)
                if len(raw) != requested * dims * 4:
                    raise invalid_export(f"{VECTORS} ends after {first} of {count} vectors")
                rows = np.frombuffer(raw, dtype="<f4").reshape(requested, dims)
                lengths = np.square(rows).sum(axis=1, dtype=np.float32)  # as the database adds them up
                if not (np.isfinite(lengths) & (lengths > 0)).all():
                    raise invalid_export(f"{VECTORS} holds a vector without a direction: all zeros, or not finite")
                yield from rows

    def _check_header(self, opened: BinaryIO, count: int, dims: int) -> None:
        try:
            version = np.lib.format.read_magic(opened)
            shape, fortran, kind = np.lib.format.read_array_header_1_0(opened)
        except Exception as error:  # NumPy evaluates the header, and promises no kind of error
            raise invalid_export(f"{VECTORS} is no NumPy file: {error}") from None
        if version != (1, 0) or fortran or kind != np.dtype("<f4") or shape != (count, dims):
            raise invalid_export(
                f"{VECTORS} holds {kind} of shape {shape}; expected little-endian float32 of shape {(count, dims)}"
            )

    def source_bytes(self) -> Iterator[tuple[Row, bytes]]:
        """Each uploaded file with what is said of it, in order; its SHA-256 is that of the row."""
        with self.open(SOURCES) as opened:
            for row in self.rows(UPLOADS.member):
                size = row.get("size_bytes")
                if not isinstance(size, int) or not 0 <= size <= self.manifest.members[SOURCES].bytes:
                    raise invalid_export(f"{UPLOADS.member} states a size that {SOURCES} cannot hold: {size!r}")
                with _reading(SOURCES):
                    content = opened.read(size)
                if hashlib.sha256(content).hexdigest() != row.get("sha256"):
                    raise invalid_export(f"the source of {row.get('doc_id')!r} is not what its SHA-256 says")
                yield row, content
            if opened.read(1):
                raise invalid_export(f"{SOURCES} holds more than the files that {UPLOADS.member} names")


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise invalid_export(f"{name} cannot be read ({error}); the file is damaged or was cut off") from None


def _read_row(line: bytes, name: str, number: int) -> Row:
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise invalid_export(f"line {number} of {name} is no JSON object, or is longer than a document may be")
    return row


def read_manifest_values(values: Any) -> Manifest:
    """The manifest as it is used, once its form, version and counts are accepted. Raises ServiceError 422."""
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise invalid_export(f"{MANIFEST} is not that of an export of ragd; its format must be {FORMAT!r}")
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise invalid_export(
            f"the export has format version {version!r}, and this ragd reads {FORMAT_VERSION}; "
            f"import it with the version that wrote it ({values.get('ragd_version')!r}) or a newer one"
        )
    if values.get("spec_version") != SPEC_VERSION:
        raise invalid_export(
            f"the export follows version {values.get('spec_version')!r} of the specification, and this ragd "
            f"{SPEC_VERSION!r}: its chunks would be searched by other rules. Import the source files instead"
        )
    for name, fields in (
        ("collection", ("name", *SETTINGS)),
        ("index_version", INDEX_VERSION_FIELDS),
        ("statistics", STATISTICS_FIELDS),
        ("counts", ()),
    ):
        _check_object(values.get(name), name, fields)
    collection = values["collection"]
    for name in ("chunk_policy", "retention", "security"):
        _check_object(collection[name], name, ())
    try:
        check_policy(collection["chunk_policy"])
        check_retention(collection["retention"])
        check_security(collection["security"])
        check_access_from(str(collection["access_from"] or ""))
        clean_collection_title(str(collection["title"]))
        clean_starters(map(str, collection["starters"]))
    except InvalidInput as error:
        raise invalid_export(f"the collection's settings cannot be kept: {error.message}") from None
    members = values.get("members")
    known = (*OWN_MEMBERS, *(part.member for part in registered_parts()))
    _check_object(members, "members", known)
    assert isinstance(members, dict)
    if foreign := sorted(set(members) - set(known)):
        raise invalid_export(f"the export holds {foreign[0]!r}, which this version of ragd does not know")
    manifest = Manifest(values, {name: _read_member(name, entry) for name, entry in members.items()})
    dims = manifest.collection["embed_dims"]
    if not _is_count(dims) or not 1 <= dims <= 4000:
        raise invalid_export(f"embed_dims must be from 1 to 4000, not {dims!r}")
    if manifest.members[CHUNKS.member].rows != manifest.members[VECTORS].rows:
        raise invalid_export("the export has another number of vectors than of chunks")
    return manifest


def _check_object(value: Any, name: str, fields: tuple[str, ...]) -> None:
    if not isinstance(value, Mapping):
        raise invalid_export(f"{MANIFEST} has no object {name!r}")
    if missing := [field for field in fields if field not in value]:
        raise invalid_export(f"{name} of {MANIFEST} has no {missing[0]!r}")


def _read_member(name: str, entry: Any) -> Member:
    _check_object(entry, name, ("sha256", "bytes", "rows"))
    if not isinstance(entry["sha256"], str) or not _is_count(entry["bytes"]) or not _is_count(entry["rows"]):
        raise invalid_export(f"{MANIFEST} says of {name} what cannot be: {dict(entry)!r}")
    return Member(name, entry["sha256"], entry["bytes"], entry["rows"])


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_manifest(source: Source) -> dict[str, Any]:
    """What an export says of itself, checked for form and version; the rest of the file is not read."""
    with Archive(Path(source) if isinstance(source, str) else source) as archive:
        return dict(archive.manifest.values)
