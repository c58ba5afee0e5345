"""How long each kind of data is kept. What the environment states goes first, then what an administrator set on the
page *Retention*, else the default.

Whatever deletes by it reads the rows of the settings again first.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings

from collections_app.endpoints.server_settings import stored

ENVIRONMENT, DATABASE, DEFAULT = "environment", "database", "default"
DAYS, REVISIONS, MEGABYTES = "days", "revisions", "MB"
DAYS_MAX, REVISIONS_MAX, MEGABYTES_MAX = 36_500, 1_000, 1_000_000_000


@dataclass(frozen=True, slots=True)
class Period:
    """How long, or how much, is kept of one kind of data.

    key: its name, in collections (`retention`) and in settings. variable: of the environment. unit: DAYS, REVISIONS or
    MEGABYTES. most: the largest value. of_collection: whether a collection may have a value of its own. report: the
    entry of a retention operation's report that counts what went.
    """

    key: str
    variable: str
    report: str
    unit: str = DAYS
    most: int = DAYS_MAX
    of_collection: bool = False


PERIODS = {
    period.key: period
    for period in (
        Period("runs_days", "RAGD_RUN_RETENTION_DAYS", "runs", of_collection=True),
        Period("span_days", "RAGD_SPAN_RETENTION_DAYS", "spans"),
        Period("span_mb", "RAGD_SPAN_MAX_MB", "spans", MEGABYTES, MEGABYTES_MAX),
        Period("evaluation_days", "RAGD_EVALUATION_RETENTION_DAYS", "evaluation_runs"),
        Period("trash_days", "RAGD_TRASH_DAYS", "trashed_documents"),
        Period("revisions", "RAGD_REVISIONS_KEPT", "revisions", REVISIONS, REVISIONS_MAX, of_collection=True),
        Period("deleted_days", "RAGD_DELETED_KEPT_DAYS", "deleted_documents", of_collection=True),
        Period("index_version_days", "RAGD_INDEX_VERSION_KEEP_DAYS", "index_versions"),
    )
}


@dataclass(frozen=True, slots=True)
class KeptFor:
    """What holds for a kind of data. source: ENVIRONMENT, DATABASE or DEFAULT. default: what holds where nothing is set
    here. updated_by: "" unless DATABASE."""

    period: Period
    value: int
    source: str
    default: int
    updated_by: str = ""


def kept_for(key: str) -> int:
    """The server's value: days, revisions or MB."""
    return find_period(key).value


def find_period(key: str) -> KeptFor:
    """What holds for one kind of data. Raises KeyError for a key that is not in PERIODS."""
    period = PERIODS[key]
    value = int(getattr(settings, period.variable))
    if is_stated(period):
        return KeptFor(period, value, ENVIRONMENT, value)
    if period.variable not in stored.setters:
        return KeptFor(period, value, DEFAULT, value)
    usual = int(settings.RAGD_AT_START[period.variable])
    return KeptFor(period, value, DATABASE, usual, stored.setters[period.variable])


def is_stated(period: Period) -> bool:
    """Whether the environment states it."""
    return period.variable in settings.RAGD_STATED
