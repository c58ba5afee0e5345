"""What files that are here would do: the plan of an upload with its bytes, the members of archives one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collections_app.models import Collection
from collections_app.parsing import ParseError, archive_type
from collections_app.services.governance.document_access import Codes
from collections_app.services.uploads.archives import list_archive, plan_archive
from collections_app.services.uploads.current_state import RequestedMetadata
from collections_app.services.uploads.upload_plan import (
    Entry,
    PlanLine,
    Planner,
    UploadPlan,
    check_clash,
    is_refused,
    wanted_id,
)
from collections_app.services.uploads.uploads import NOTHING, UploadedFile, check_counts


def preview_uploads(
    collection: Collection,
    files: Sequence[UploadedFile],
    *,
    doc_ids: Sequence[str] = (),
    tags: Sequence[str] | None = (),
    metadata: Mapping[str, Any] | None = NOTHING,
    policy: Mapping[str, Any] | None = None,
    on_clash: str = "replace",
    choices: Sequence[str] = (),
    language: str | None = None,
    access: Codes | None = None,
) -> UploadPlan:
    """What `submit_uploads` would do with these files; nothing is written.

    An archive is unpacked under the parser's limits, and its line is followed by one per member. One that cannot be
    read is rejected with the reason.
    """
    check_clash(on_clash)
    requested, clashes = check_counts(files, doc_ids, choices)
    asked = RequestedMetadata.read(tags, metadata, policy, language, access)
    planner = Planner(collection, asked, on_clash=on_clash)
    entries = [
        Entry(doc_id, "", file.size or 0, file.name or "file", choice)
        for file, doc_id, choice in zip(files, requested, clashes, strict=True)
    ]
    planner.load(wanted_id(entry) for entry in entries)
    lines: list[PlanLine] = []
    for file, entry in zip(files, entries, strict=True):
        lines += _preview(planner, file, entry)
    return UploadPlan(lines)


def _preview(planner: Planner, file: UploadedFile, entry: Entry) -> list[PlanLine]:
    if is_refused(entry):
        return [planner.decide(entry)]
    content = file.read()
    is_archive = bool(archive_type(content, file.name or ""))
    line = planner.decide(replace(entry, sha256=hashlib.sha256(content).hexdigest()), is_archive=is_archive)
    if line.status != "archive":
        return [line]
    try:
        contents = list_archive(content)
    except ParseError as error:
        return [replace(line, status="rejected", reason=error.message, error_type=error.kind)]
    return plan_archive(planner, line, contents, on_clash=entry.on_clash).lines
