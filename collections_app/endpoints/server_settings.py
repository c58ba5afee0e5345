"""Settings of the server that administrators set on pages. What the environment states goes first, then what is stored
here, else the default.

A stored value becomes the Django setting of its name, so whoever reads the setting sees it: at once in the process that
saved it, in every other one at its next request or task, at most REFRESH_S later.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils.module_loading import import_string

from collections_app.access.context import elevated, system_access
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.collections.models import name_actor
from collections_app.endpoints.secrets import UnreadableSecretError, decrypt, encrypt
from collections_app.errors import ServiceError
from collections_app.models import ServerSetting

REFRESH_S = 2.0
AUDITED_CHARS = 4000
log = logging.getLogger(__name__)


class StoredSettings:
    """What this process took over of the rows of ServerSetting. setters: the name of each stored setting, and who set
    it."""

    def __init__(self) -> None:
        self.setters: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._read_at: float | None = None
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Take the rows over where that is REFRESH_S ago. A database that does not answer changes nothing."""
        if self._read_at is not None and time.monotonic() - self._read_at < REFRESH_S:
            return
        try:
            self.take_over()
        except DatabaseError as error:
            self._read_at = time.monotonic()
            log.warning("the settings that pages set could not be read: %s", error)

    def take_over(self) -> None:
        """Read the rows, and let the settings be what they say."""
        with self._lock:  # else a thread that read earlier rows could apply them last, and for good
            with system_access():
                rows = list(ServerSetting.objects.values_list("key", "value", "secret", "updated_by"))
            values: dict[str, Any] = {}
            for key, value, secret, _ in rows:
                if key not in settings.RAGD_AT_START or key in settings.RAGD_STATED:
                    continue
                try:
                    values[key] = decrypt(secret) if secret else value
                except UnreadableSecretError as error:
                    log.warning("%s is not set: %s", key, error)
            self.setters = {key: by for key, _, _, by in rows if key in values}
            self.apply(values)
            self._read_at = time.monotonic()

    def apply(self, values: Mapping[str, Any]) -> None:
        """Let these be all that pages have set; what they no longer set is again as at the start of the process."""
        if values == self._values:
            return
        for name in self._values.keys() - values.keys():
            setattr(settings, name, settings.RAGD_AT_START[name])
        for name, value in values.items():
            setattr(settings, name, value)
        for name, value in import_string(settings.RAGD_DERIVE)(settings).items():
            setattr(settings, name, value)
        import_string(settings.RAGD_FOLLOW)()
        self._values = dict(values)


stored = StoredSettings()


@transaction.atomic
def change_settings(changes: Mapping[str, Any], secrets: Mapping[str, str | None], *, actor: services.Actor) -> None:
    """Store these checked values, by name; None: the default again.

    For administrators of all collections. Raises Forbidden; ServiceError 409 where the environment states one.
    """
    for name in (*changes, *secrets):
        if name in settings.RAGD_STATED:
            raise ServiceError(
                f"{name} of the environment holds; change the variable, or unset it and start again to set it here",
                type="set_by_environment",
                field=name,
            )
    by = name_actor(actor)
    with elevated(Permission.ADMINISTER):
        rows = ServerSetting.objects.select_for_update().filter(pk__in=changes)
        before = {row.key: {"source": "database", "value": row.value} for row in rows}
        for name, value in changes.items():
            old = before.get(name, {"source": "default", "value": settings.RAGD_AT_START[name]})
            new = {"source": "database", "value": value}
            if value is None:
                new = {"source": "default", "value": settings.RAGD_AT_START[name]}
            if new != old:
                row = ServerSetting(key=name, value=value, updated_by=by)
                _write(row, is_default=value is None)
                services.record(
                    actor, [row], services.CHANGE, "set on a page", before=_shorten(old), after=_shorten(new)
                )
        for name, text in secrets.items():
            row = ServerSetting(key=name, secret=encrypt(text or ""), updated_by=by)
            _write(row, is_default=not text)
            services.record(actor, [row], services.CHANGE, "set on a page" if text else "the default again")
    stored.take_over()
    transaction.on_commit(stored.take_over, robust=True)


def _shorten(event: dict[str, Any]) -> dict[str, Any]:
    """For the audit log: of a file its size and hash."""
    value = event["value"]
    if isinstance(value, str) and len(value) > AUDITED_CHARS:
        event = event | {"value": f"{len(value)} characters, SHA-256 {hashlib.sha256(value.encode()).hexdigest()}"}
    return event


def _write(row: ServerSetting, *, is_default: bool) -> None:
    if is_default:
        ServerSetting.objects.filter(pk=row.key).delete()
    else:
        row.save()
