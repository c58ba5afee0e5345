"""What people and API keys may do, and the roles that people have. No database."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from django.db import models
from django.utils.translation import gettext_lazy, override


class Permission(StrEnum):
    """What a role gives, and the scopes of API keys.

    read: documents, chunks, evaluations. ask: search and answers. write: documents, settings, jobs. evaluate: test
    sets, evaluation runs, and the query runs of everybody. administer: who may what, deletion, exports of the whole.
    """

    READ = "read"
    ASK = "ask"
    WRITE = "write"
    EVALUATE = "evaluate"
    ADMINISTER = "administer"


ALL_PERMISSIONS = frozenset(Permission)


class Role(models.TextChoices):
    VIEWER = "viewer", gettext_lazy("Can view")
    ASKER = "asker", gettext_lazy("Can ask")
    CURATOR = "curator", gettext_lazy("Can edit")
    EVALUATOR = "evaluator", gettext_lazy("Can evaluate")
    ADMINISTRATOR = "administrator", gettext_lazy("Can manage")


def english(role: str) -> str:
    """The label of a role for texts that are kept, such as those of the audit log."""
    with override("en"):
        return str(Role(role).label)


GIVEN: dict[str, frozenset[Permission]] = {
    Role.VIEWER: frozenset({Permission.READ}),
    Role.ASKER: frozenset({Permission.READ, Permission.ASK}),
    Role.CURATOR: frozenset({Permission.READ, Permission.ASK, Permission.WRITE}),
    Role.EVALUATOR: frozenset({Permission.READ, Permission.ASK, Permission.EVALUATE}),
    Role.ADMINISTRATOR: ALL_PERMISSIONS,
}

# Principals of access lists, as ragd/schema.sql numbers them
ADMINISTRATORS, EVERYBODY = 0, 1


def user_principal(pk: int) -> int:
    return 2 * pk


def group_principal(pk: int) -> int:
    return 2 * pk + 1


def thread_principal(pk: UUID) -> int:
    """A thread of the chat. Nobody is it but its owner, on its pages and in its questions."""
    return -1 - (pk.int >> 66)
