"""The audit log: who did what, when and from where; the chain that shows a gap; and what was erased for good."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy


class AuditEvent(models.Model):
    """One change, reading, log-in or refusal. Rows are written once: the database refuses to change or delete them.

    Two groups of columns can be erased later without breaking the chain, because the hash covers their digests alone:
    who (actor_id, actor_name, address) and what (subject_name, message, before, after). A digest is an HMAC under a
    random salt of the row; an erasure empties the columns and forgets the salt, and is an event itself that names the
    rows. digest: SHA-256 of the other columns and both digests; `AuditLink` chains it.

    before, after: what changed, field by field; secrets never, texts as their hash and length.
    """

    class ActorKind(models.TextChoices):
        USER = "user", gettext_lazy("User")
        KEY = "key", gettext_lazy("API key")
        SYSTEM = "system", gettext_lazy("System")
        ANONYMOUS = "anonymous", gettext_lazy("Not logged in")

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded", gettext_lazy("Succeeded")
        REFUSED = "refused", gettext_lazy("Refused")

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(default=timezone.now)
    actor_kind = models.CharField(max_length=10, choices=ActorKind)
    actor_id = models.TextField(default="", blank=True)
    actor_name = models.TextField(default="", blank=True)
    channel = models.CharField(max_length=10)
    address = models.TextField(default="", blank=True)
    request_id = models.TextField(default="", blank=True)
    action = models.CharField(max_length=64)
    subject_kind = models.CharField(max_length=64, default="", blank=True)
    subject_id = models.TextField(default="", blank=True)
    subject_name = models.TextField(default="", blank=True)
    collection_id = models.BigIntegerField(null=True, blank=True, db_column="of_collection_id")
    collection_name = models.TextField(db_collation="C", default="", blank=True)
    message = models.TextField(default="", blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    outcome = models.CharField(max_length=10, choices=Outcome, default=Outcome.SUCCEEDED)
    who_salt = models.BinaryField(null=True, editable=False)
    who_digest = models.CharField(max_length=64)
    what_salt = models.BinaryField(null=True, editable=False)
    what_digest = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)

    class Meta:
        db_table = "audit_events"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["actor_name", "-id"], name="audit_events_actor"),
            models.Index(fields=["collection_name", "-id"], name="audit_events_collection"),
            models.Index(fields=["action", "-id"], name="audit_events_action"),
            models.Index(fields=["subject_kind", "subject_id", "-id"], name="audit_events_subject"),
            models.Index(fields=["at"], name="audit_events_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} {self.subject_name}".strip()

    @property
    def is_erased(self) -> bool:
        """Whether a part of it was erased."""
        return self.who_salt is None or self.what_salt is None


class AuditLink(models.Model):
    """The place of an event in the chain, given when its transaction commits: positions have no gap.

    hash: SHA-256 of "position prev_hash digest", in hexadecimal; prev_hash of the first is 64 zeros.
    """

    event = models.OneToOneField(
        AuditEvent, primary_key=True, on_delete=models.DO_NOTHING, db_constraint=False, related_name="link"
    )
    position = models.BigIntegerField(null=True, unique=True)
    prev_hash = models.CharField(max_length=64, default="", db_default="")
    hash = models.CharField(max_length=64, default="", db_default="")

    class Meta:
        db_table = "audit_links"

    def __str__(self) -> str:
        return f"{self.position}: {self.hash[:12]}"


class AuditHead(models.Model):
    """The end of the chain. Whoever commits an event waits here for who committed the one before."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    position = models.BigIntegerField()
    hash = models.CharField(max_length=64)

    class Meta:
        db_table = "audit_head"

    def __str__(self) -> str:
        return f"{self.position}: {self.hash[:12]}"


class Erasure(models.Model):
    """What was erased for good, kept outside of what it names, so that a restored backup can be erased again.

    subject: {"collection", "doc_id"}, {"collection"} or {"person": pseudonym, "user_id"}. name_hash: of a person,
    SHA-256 of the user name, by which the row finds them in a backup. counts: table -> rows.
    """

    class Kind(models.TextChoices):
        DOCUMENT = "document", gettext_lazy("Document")
        COLLECTION = "collection", gettext_lazy("Collection")
        PERSON = "person", gettext_lazy("Person")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    subject = models.JSONField(default=dict)
    name_hash = models.CharField(max_length=64, default="", blank=True)
    counts = models.JSONField(default=dict)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        db_table = "erasures"
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} at {self.at:%Y-%m-%d %H:%M}"
