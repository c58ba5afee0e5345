"""What is stated of documents that come in, and what a job keeps of where one came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ragd.errors import InvalidInput
from ragd.identity import check_language, clean_metadata, clean_tags

CLASHES = ("replace", "skip", "keep_both")
UPLOAD, URL, S3, SYNC, ARCHIVE, MEMBER, ATTACHMENT = "", "url", "s3", "sync", "archive", "member", "attachment"


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What a request states of all its documents. None: nothing is stated, so what a document has stays.

    policy: the stated fields of the chunk policy. language: ISO 639-1 code, "" to detect it. access: who may read the
    documents, as `document_access.resolve` gives it. on_clash: what happens to an item whose doc_id has other content:
    "replace" the document, "skip" the item, or "keep_both" under the next free number.
    """

    tags: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    policy: Mapping[str, Any] | None = None
    language: str | None = None
    access: tuple[int, ...] | None = None
    on_clash: str = "replace"

    def cleaned(self) -> IngestOptions:
        """Return the options as they are stored. Raises InvalidInput."""
        check_clash(self.on_clash)
        return replace(
            self,
            tags=None if self.tags is None else list(clean_tags(self.tags)),
            metadata=None if self.metadata is None else clean_metadata(self.metadata),
            policy={name: value for name, value in (self.policy or {}).items() if value is not None} or None,
            language=None if self.language is None else check_language(self.language),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what is stated."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def overridden(self, stored: Mapping[str, Any]) -> IngestOptions:
        """Return these options where `stored`, the JSON of others, states nothing."""
        access = {"access": tuple(stored["access"])} if "access" in stored else {}
        return replace(self, **{**stored, **access})


NOTHING_STATED = IngestOptions()


def check_clash(on_clash: str) -> None:
    """Raise InvalidInput for a value that is none of CLASHES."""
    if on_clash not in CLASHES:
        raise InvalidInput(f"on_clash must be one of {', '.join(CLASHES)}, not {on_clash!r}", field="on_clash")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the document of a job comes from, and what was stated with it. `parse` reads what `as_json` writes.

    type: UPLOAD, URL, S3, SYNC (an item of a source), ARCHIVE, or MEMBER or ATTACHMENT of another file, `of`.
    address: the URL, s3://bucket/key, or the ID of the item. endpoint: of the bucket's server, or "source:<id>".
    version: as a listing tells it, "" without one. etag, last_modified, final_address: as the server told them when it
    was fetched. path: of a member in its archive. level: how many documents an attachment lies in. prefix, done,
    on_clash, unstated: of an archive the folder of its members, how many of them have jobs, the choice for all of them,
    and which of tags and metadata were not stated. language, access: as they were stated. held: the access list that
    the document has until it is stored. sender: (user, API key) that must still be allowed to write when the job runs;
    None: the server itself.
    """

    type: str = UPLOAD
    address: str = ""
    endpoint: str = ""
    version: str = ""
    etag: str = ""
    last_modified: str = ""
    final_address: str = ""
    of: str = ""
    path: str = ""
    level: int = 0
    prefix: str | None = None
    done: int = 0
    on_clash: str = "replace"
    unstated: tuple[str, ...] = ()
    language: str | None = None
    access: tuple[int, ...] | None = None
    held: tuple[int, ...] | None = None
    sender: tuple[int | None, int | None] | None = None

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Origin:
        """Read the JSON of a job."""
        values = {each.name: stored[each.name] for each in fields(cls) if each.name in stored}
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**values | lists)

    def as_json(self) -> dict[str, Any]:
        """Return every field that has another value than its default."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        defaults = {each.name: each.default for each in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value != defaults[name]
        }

    @property
    def is_fetched(self) -> bool:
        """Whether there is a source that it is fetched from."""
        return bool(self.address)

    @property
    def without_source(self) -> Origin:
        """Of an uploaded file that takes the place of a fetched one."""
        names = ("address", "endpoint", "version", "etag", "last_modified", "final_address")
        cleared: dict[str, Any] = dict.fromkeys(names, "")
        return replace(self, type=UPLOAD, **cleared)
