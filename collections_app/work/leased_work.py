"""What a row needs to be background work."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class LeasedWork(models.Model):
    """Work whose whole state is its row. The broker carries the row's id and may lose or repeat it.

    worker: host:pid of the process that claimed it last, "" when it was given back. attempts: how often it was claimed;
    the number fences the writes of an attempt. attempts_forgiven: those that do not count against the limit, because
    progress was stored for good after them or because the work is not to blame for their end. sent_at: when its message
    was last sent, or the moment before which it is not to be sent. lease_until: null while nobody holds it.
    """

    worker = models.TextField(default="", blank=True)
    attempts = models.IntegerField(default=0)
    attempts_forgiven = models.IntegerField(default=0)
    sent_at = models.DateTimeField(default=timezone.now, editable=False)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @property
    def tries(self) -> int:
        """The attempts that count against the limit."""
        return self.attempts - self.attempts_forgiven
