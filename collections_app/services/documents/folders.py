"""The folders that slashes in document ids make: those that are open, with how many documents each holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from collections_app.domain.identity import can_be_stored
from collections_app.models import Collection

OPEN_MAX = 12  # levels below the first that are opened at once
LISTED_MAX = 200  # folders of one level

# Of each open folder those right below it. "/" is followed by "0" in the collation of doc_id.
BELOW = """
SELECT path, name, count(*), bool_or(strpos(substr(rest, length(name) + 2), '/') > 0)
FROM (
    SELECT p.path, substr(d.doc_id, length(p.path) + 1) AS rest,
           split_part(substr(d.doc_id, length(p.path) + 1), '/', 1) AS name
    FROM unnest(%(paths)s::text[]) AS p (path)
    JOIN documents d ON d.collection_id = %(collection_id)s AND (d.archived_at IS NULL) = ANY(%(present)s)
        AND d.doc_id COLLATE "C" >= p.path
        AND (p.path = '' OR d.doc_id COLLATE "C" < left(p.path, -1) || '0')
) AS below
WHERE strpos(rest, '/') > 0
GROUP BY path, name
ORDER BY path, name COLLATE "C"
"""
PRESENT = {"archived": [False], "any": [True, False]}


@dataclass(slots=True)
class Folder:
    """path: what the ids in it begin with, with a slash at its end. total: documents in it at any depth.

    below: its folders, where it is open. more: how many of them are not listed.
    """

    path: str
    name: str
    total: int
    has_folders: bool
    is_open: bool = False
    below: list[Folder] = field(default_factory=list)
    more: int = 0


def folders_of(collection: Collection, path: str = "", *, state: str = "present", alone: bool = False) -> Folder:
    """The whole collection as a folder, with those above the path open and the path itself; alone: the path's own
    folders only. One query, whatever is in it. state: as `DocumentFilter` has it."""
    path = path if can_be_stored(path) else ""
    steps = path.split("/")[:-1][: OPEN_MAX if not alone else None]
    opened = ["", *("/".join(steps[: count + 1]) + "/" for count in range(len(steps)))]
    paths = [path] if alone else opened
    params: dict[str, Any] = {"collection_id": collection.pk, "paths": paths, "present": PRESENT.get(state, [True])}
    with connection.cursor() as cursor:
        cursor.execute(BELOW, params)
        rows = cursor.fetchall()
    found: dict[str, list[Folder]] = {each: [] for each in paths}
    for parent, name, total, has_folders in rows:
        found[parent].append(Folder(f"{parent}{name}/", name, total, has_folders))
    root = Folder(paths[0], "", 0, bool(found[paths[0]]), is_open=True)
    _hang(root, found, paths)
    return root


def _hang(folder: Folder, found: dict[str, list[Folder]], paths: Sequence[str]) -> None:
    """Put the folders that were found below those that are open. The open one is listed however many there are."""
    rest = folder
    for path in paths:
        listed = found[path]
        rest.below, rest.more = listed[:LISTED_MAX], max(len(listed) - LISTED_MAX, 0)
        following = next((each for each in listed if each.path in found), None)
        if following is None:
            return
        if following not in rest.below:
            rest.below.append(following)
            rest.more -= 1
        following.is_open = True
        rest = following
