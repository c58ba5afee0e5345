"""Who sees sources, their syncs and what these changed: whoever may write, without documents kept from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from collections_app.access.context import Access, using_access
from collections_app.access.document_access import set_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.models import Collection, Operation, RoleGrant, Source, SourceChange
from collections_app.sources.records import delete_source
from tests.sources.syncing import changes, sync

pytestmark = pytest.mark.django_db


def make_source(collection: Collection) -> Source:
    source = Source.objects.create(collection=collection, kind="website", name="docs", last_error="torn")
    run = Operation.objects.create(kind="sync", subject=collection.name, source=source, finished_at=timezone.now())
    for doc_id in ("open.md", "secret.md"):
        SourceChange.objects.create(run=run, collection=collection, doc_id=doc_id, kind="added")
    return source


def as_role(name: str, role: str, collection: Collection) -> Access:
    user = User.objects.create_user(name)
    RoleGrant.objects.create(user=user, collection_id=collection.pk, role=role)
    return access_of_user(user)


def test_rows_are_those_of_who_may_write_there(notes: Collection, embeddings: Any) -> None:
    other = create_collection(name="other")
    source = make_source(notes)
    make_source(other)
    set_access(notes, ["secret.md"])
    seen = {}
    for name, role in (("viewer", Role.VIEWER), ("curator", Role.CURATOR), ("administrator", Role.ADMINISTRATOR)):
        with using_access(as_role(name, role, notes)):
            changes = sorted(SourceChange.objects.values_list("doc_id", flat=True))
            seen[name] = (list(Source.objects.all()), Operation.objects.count(), changes)
    assert (seen["viewer"], seen["curator"]) == (([], 0, []), ([source], 1, ["open.md"]))
    assert seen["administrator"] == ([source], 1, ["open.md", "secret.md"])


def test_a_curator_deletes_a_source_with_changes_that_they_do_not_see(notes: Collection) -> None:
    source = make_source(notes)
    set_access(notes, ["secret.md"])
    with using_access(as_role("curator", Role.CURATOR, notes)):
        delete_source(Source.objects.select_related("collection").get(pk=source.pk))
    assert not SourceChange.objects.exists()


def test_a_sync_that_a_curator_runs_sees_what_it_brought(notes: Collection, share: Path, connect: Any) -> None:
    (share / "secret.md").write_text("# Secret")
    source = connect("folder", path=str(share))
    sync(source)
    set_access(notes, ["secret.md"])
    (share / "secret.md").write_text("# Secret, longer")
    with using_access(as_role("curator", Role.CURATOR, notes)):
        run = sync(source, ingests=False)
    assert changes(run) == {"updated": ["secret.md"]}
