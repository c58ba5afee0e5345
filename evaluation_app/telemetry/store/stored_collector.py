"""The collector that an administrator sets on the page *Connections*: checked, its headers encrypted, in the audit
log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction

from collections_app.access.context import elevated
from collections_app.access.permissions import Permission
from collections_app.audit import services
from collections_app.audit.services import differing
from collections_app.collections.models import name_actor
from collections_app.endpoints.secrets import UnreadableSecretError, encrypt
from collections_app.errors import ServiceError
from collections_app.models import ServerSetting
from evaluation_app.telemetry.store.collector import PROTOCOLS, Collector, open_row, read_collector
from ragd.errors import InvalidInput
from ragd.identity import UNSEEN
from ragd.readers.fetching.addresses import find_metadata_host

SETTING = "collector"  # the key of its row, as in READ_SETTING
ENDPOINT_CHARS_MAX = 500
HEADERS_MAX = 20
HEADER_CHARS_MAX = 4000
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
OWN_HEADERS = frozenset(
    {"content-type", "content-length", "content-encoding", "host", "transfer-encoding", "connection"}
)
AUDITED = ("endpoint", "protocol", "header_names", "is_enabled")


@dataclass(frozen=True, slots=True)
class CollectorValues:
    """What an administrator fills in. headers: None keeps the stored ones, {} for none."""

    endpoint: str
    protocol: str = PROTOCOLS[0]
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    is_enabled: bool = True


@dataclass(slots=True)
class CollectorSetting:
    """Where spans are sent besides the span store, where the environment names no endpoint: a row of `ServerSetting`.

    endpoint: with the path that takes spans. header_names: of the headers, whose values are in `secret`: a JSON object,
    encrypted, "" for none.
    """

    endpoint: str
    protocol: str
    is_enabled: bool = True
    header_names: Sequence[str] = ()
    secret: str = field(default="", repr=False)
    updated_by: str = ""
    updated_at: datetime | None = None


def stored_collector() -> CollectorSetting | None:
    """The row, enabled or not; None before the first. For administrators of the server: others see none."""
    row = ServerSetting.objects.filter(pk=SETTING).first()
    return (
        row
        if row is None
        else CollectorSetting(**row.value, secret=row.secret, updated_by=row.updated_by, updated_at=row.updated_at)
    )


def draft_collector(values: CollectorValues, row: CollectorSetting | None) -> CollectorSetting:
    """The checked row as it would be written; nothing is written. row: the stored one.

    Raises InvalidInput with the field.
    """
    endpoint = _check_address(values.endpoint.strip())
    if values.protocol not in PROTOCOLS:
        raise InvalidInput(f"protocol must be one of {', '.join(PROTOCOLS)}, not {values.protocol!r}", field="protocol")
    draft = CollectorSetting(endpoint=endpoint, protocol=values.protocol, is_enabled=values.is_enabled)
    if values.headers is not None:
        _check_headers(values.headers)
        draft.secret = encrypt(json.dumps(dict(values.headers))) if values.headers else ""
        draft.header_names = sorted(values.headers)
    elif row is not None and row.secret:
        if _origin(row.endpoint) != _origin(endpoint):
            raise InvalidInput(
                f"enter the headers again: the stored ones were given for {_origin(row.endpoint)}", field="headers"
            )
        draft.secret, draft.header_names = row.secret, row.header_names
    return draft


def as_collector(draft: CollectorSetting) -> Collector:
    """As it is sent to. draft: of `draft_collector`. Raises InvalidInput (headers) where the stored ones cannot be
    decrypted."""
    try:
        return open_row((draft.endpoint, draft.protocol, draft.secret))
    except UnreadableSecretError as error:
        raise InvalidInput(str(error), field="headers") from None


@transaction.atomic
def save_collector(values: CollectorValues, *, actor: services.Actor) -> CollectorSetting:
    """Have every process send its spans there, from its next look at the row on (REFRESH_S).

    Raises InvalidInput with the field; ServiceError 409 where the environment names an endpoint.
    """
    _require_free()
    with elevated(Permission.ADMINISTER):
        earlier = stored_collector()
        draft = draft_collector(values, earlier)
        row = ServerSetting(key=SETTING, value=_stated(draft), secret=draft.secret, updated_by=name_actor(actor))
        row.save()
        old, new = differing(_stated(earlier) if earlier else {}, row.value)
        about = {True: "with new headers", False: "spans are sent there"}[bool(values.headers)]
        action = services.CHANGE if earlier else services.ADDITION
        services.record(actor, [row], action, about, before=old if earlier else None, after=new)
    return replace(draft, updated_by=row.updated_by, updated_at=row.updated_at)


@transaction.atomic
def remove_collector(*, actor: services.Actor) -> None:
    """Forget the endpoint and its headers; spans stay in the span store."""
    with elevated(Permission.ADMINISTER):
        for row in ServerSetting.objects.select_for_update().filter(pk=SETTING):
            about = f"spans are no longer sent to {row.value['endpoint']}"
            services.record(actor, [row], services.DELETION, about)
            row.delete()


def _stated(draft: CollectorSetting) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in AUDITED}


def read_headers(text: str) -> dict[str, str]:
    """Of lines `name: value` or `name=value`. Raises InvalidInput (headers) for another line."""
    found: dict[str, str] = {}
    for line in filter(None, (part.strip() for part in text.splitlines())):
        name, mark, value = line.partition(min((":", "="), key=lambda mark: line.find(mark) % (len(line) + 1)))
        if not mark:
            raise InvalidInput("each header must be a line such as api-key: YOUR_KEY", field="headers")
        found[name.strip()] = value.strip()
    return found


def _check_address(text: str) -> str:
    """The address that takes spans: of a base address, or of one that ends in /v1/traces."""
    if len(text) > ENDPOINT_CHARS_MAX or UNSEEN.search(text):
        raise InvalidInput(f"the endpoint must have at most {ENDPOINT_CHARS_MAX} visible characters", field="endpoint")
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidInput(
            f"the endpoint must be an address such as http://127.0.0.1:4318; this is {text[:200]!r}", field="endpoint"
        )
    address = text if parts.path.endswith("/v1/traces") else f"{text.rstrip('/')}/v1/traces"
    if parts.username is not None or parts.password is not None or "?" in address or "#" in address:
        raise InvalidInput(
            "the endpoint must not hold a user, a password, ? or #; enter a key as a header", field="endpoint"
        )
    if ip := find_metadata_host(parts.hostname or "", parts.port):
        raise InvalidInput(
            f"{parts.hostname} leads to {ip}, where no collector answers; enter the collector's address",
            field="endpoint",
        )
    return address


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raises InvalidInput; values are not repeated in messages."""
    if len(headers) > HEADERS_MAX:
        raise InvalidInput(f"at most {HEADERS_MAX} headers are sent, not {len(headers)}", field="headers")
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or name.lower() in OWN_HEADERS:
            raise InvalidInput(f"{name[:100]!r} cannot be the name of a header here", field="headers")
        if not value or len(value) > HEADER_CHARS_MAX or not (value.isascii() and value.isprintable()):
            raise InvalidInput(
                f"the value of {name} must be 1 to {HEADER_CHARS_MAX} visible ASCII characters", field="headers"
            )


def _require_free() -> None:
    if read_collector().endpoint:
        raise ServiceError(
            "the environment names an endpoint, which holds; unset OTEL_EXPORTER_OTLP_ENDPOINT and start again to set"
            " one here",
            type="set_by_environment",
        )


def _origin(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.lower()}"
