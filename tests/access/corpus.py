"""A seeded corpus with people, groups and random access lists: each document has sentences that no other has."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from django.contrib.auth.models import Group, User
from django.db import connection

from collections_app.access.document_access import set_access, widen
from collections_app.access.permissions import Role
from collections_app.collections.services import create_collection
from collections_app.index.stores import open_store
from collections_app.models import Collection, Document, RoleGrant
from ragd.store.indexing import index
from ragd.store.store import execute, fetch_all
from ragd.types import Chunk
from ragd_site.operations.leak_probe import LISTS

SUBJECTS = ("pump", "valve", "heron", "ledger", "garden", "engine", "contract", "harbour", "lantern", "furnace")
VERBS = ("carries", "opens", "follows", "measures", "repairs", "replaces", "records", "guards")


@dataclass
class Corpus:
    collections: list[Collection]
    people: list[User]
    groups: list[Group]
    seed: int
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    @property
    def tables(self) -> list[str]:
        return [f"chunks_c{each.pk}_g{each.index_version}" for each in self.collections]

    def let_all_read(self) -> None:
        """Rights of the bound role where row security is off, as they would be without access lists."""
        for table in self.tables:
            execute(connection, f"GRANT SELECT ON {table} TO ragd_reader")

    def change_something(self) -> None:
        """A random change of who may read what."""
        chance, collection = self.chance, self.chance.choice(self.collections)
        names = list(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
        chosen = chance.sample(names, min(5, len(names)))
        match chance.randrange(5):
            case 0:
                widen(collection, chosen)
            case 1 | 2:
                users = [each.pk for each in chance.sample(self.people, 2)]
                groups = [each.pk for each in chance.sample(self.groups, chance.randrange(3))]
                set_access(collection, chosen, users=users, groups=groups)
            case 3:
                person = chance.choice(self.people)
                group = chance.choice(self.groups)
                (person.groups.remove if group in person.groups.all() else person.groups.add)(group)
            case 4:
                person = chance.choice(self.people)
                RoleGrant.objects.filter(user=person, collection_id=collection.pk).delete()
                if chance.random() < 0.7:
                    role = chance.choice([Role.VIEWER, Role.ASKER, Role.CURATOR, Role.EVALUATOR])
                    RoleGrant.objects.create(user=person, collection_id=collection.pk, role=role)

    def take_something(self) -> None:
        """Some people may no longer read a document that they could; nobody gains anything."""
        chance, collection = self.chance, self.chance.choice(self.collections)
        name = chance.choice(list(Document.objects.filter(collection=collection).values_list("doc_id", flat=True)))
        lists = dict(fetch_all(connection, LISTS, {"collection": collection.pk}))
        if name not in lists:
            set_access(collection, [name], users=[each.pk for each in chance.sample(self.people, 3)])
            return
        left = [number for number in lists[name] if number > 1 and chance.random() < 0.5]
        users = [number // 2 for number in left if number % 2 == 0]
        set_access(collection, [name], users=users, groups=[number // 2 for number in left if number % 2])


def make_corpus(*, people: int, groups: int, documents: int, seed: int, prefix: str = "") -> Corpus:
    """Two collections, one open to all who are logged in, one private with grants; about half of the documents have a
    list. Vectors are the sample embedder's, the chunks one for each document."""
    chance = random.Random(seed)
    made = Corpus(
        [create_collection(name=f"{prefix}open", open_role=Role.ASKER), create_collection(name=f"{prefix}private")],
        [User.objects.create_user(f"{prefix}person{number}") for number in range(people)],
        [Group.objects.create(name=f"{prefix}group{number}") for number in range(groups)],
        seed,
    )
    for person in made.people:
        person.groups.set(chance.sample(made.groups, chance.randrange(0, min(4, groups) + 1)))
        if chance.random() < 0.7:
            role = chance.choice([Role.VIEWER, Role.ASKER, Role.CURATOR])
            RoleGrant.objects.create(user=person, collection_id=made.collections[1].pk, role=role)
    for place, collection in enumerate(made.collections):
        store = open_store(collection)
        chunks = []
        for number in range(place, documents, len(made.collections)):
            doc_id = f"{prefix}doc{number}"
            text = sentences(chance, number)
            Document.objects.create(
                collection=collection, doc_id=doc_id, title=f"Note {number}", text=text, size_chars=len(text),
                chunk_count=1,
            )  # fmt: skip
            chunks.append(Chunk(doc_id, 0, text, 0, len(text)))
        narrow(made, collection, [chunk.doc_id for chunk in chunks], chance)
        index(chunks, store)
    return made


def sentences(chance: random.Random, number: int) -> str:
    """Three sentences about common subjects, each with a code of its own."""
    return " ".join(
        f"The {chance.choice(SUBJECTS)} {chance.choice(VERBS)} the {chance.choice(SUBJECTS)} under code"
        f" ZQ{number:05d}{part}{chance.randrange(10**6):06d} in house {chance.randrange(100)}."
        for part in "abc"
    )


def narrow(made: Corpus, collection: Collection, names: list[str], chance: random.Random) -> None:
    for name in names:
        if chance.random() < 0.5:
            users = [each.pk for each in chance.sample(made.people, chance.randrange(3))]
            groups = [each.pk for each in chance.sample(made.groups, chance.randrange(3))]
            set_access(collection, [name], users=users, groups=groups)
