"""A collection that people ask, whose documents are restricted one by one: what tests of access lists start from."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import Group, User

from collections_app.access.context import Access, using_access
from collections_app.access.permissions import Role
from collections_app.access.services import access_of_user
from collections_app.collections.services import create_collection
from collections_app.jobs.dispatch import run_job
from collections_app.models import Collection, Document, IngestJob, RoleGrant

WORD = "quokkaburrow"  # in restricted documents alone


@dataclass
class People:
    """ada reads and asks; bob too, of the rangers; cara curates, and is of the rangers."""

    collection: Collection
    ada: User
    bob: User
    cara: User
    rangers: Group

    def access(self, name: str) -> Access:
        user: User = getattr(self, name)
        return access_of_user(user)

    def documents(self, name: str) -> set[str]:
        with using_access(self.access(name)):
            return set(Document.objects.filter(collection=self.collection).values_list("doc_id", flat=True))

    def jobs(self, name: str) -> set[str]:
        with using_access(self.access(name)):
            return set(IngestJob.objects.filter(collection=self.collection).values_list("doc_id", flat=True))


def make_people(name: str = "marsh") -> People:
    collection = create_collection(name=name, open_role=Role.ASKER)
    ada, bob, cara = (User.objects.create_user(each, password="heron-reed-marsh-7") for each in ("ada", "bob", "cara"))
    rangers = Group.objects.create(name="rangers")
    bob.groups.add(rangers)
    cara.groups.add(rangers)
    RoleGrant.objects.create(user=cara, collection_id=collection.pk, role=Role.CURATOR)
    return People(collection, ada, bob, cara, rangers)


def run_all(collection: Collection) -> list[tuple[str, str]]:
    """(doc_id, state) of the jobs as a worker ends them, with those that they make."""
    ended: list[tuple[str, str]] = []
    while waiting := IngestJob.objects.active().filter(collection=collection).order_by("created_at", "pk").first():
        ended.append((waiting.doc_id, run_job(waiting.pk) or "taken"))
    return ended
