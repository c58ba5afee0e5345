"""A prefix of a bucket of an S3-compatible server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy

from collections_app.connectors.protocol import INCLUDE, BaseConnector, Field, File, Item, Reach, matches
from collections_app.fetching.buckets import Bucket, BucketKeys

PREFIX_MAX_CHARS = 1024


class S3Connector(BaseConnector):
    """Every object under the prefix. Without an access key the server's own keys are used at its own endpoint, and
    none elsewhere."""

    kind = "s3"
    title = gettext_lazy("S3 bucket")
    about = gettext_lazy("The objects under a prefix of a bucket, at Amazon or an S3-compatible server.")
    fields = (
        Field("bucket", gettext_lazy("Bucket"), required=True),
        Field("prefix", gettext_lazy("Prefix"), help=gettext_lazy("Such as reports/2026/. Empty: the whole bucket.")),
        Field("endpoint", gettext_lazy("Endpoint"), help=gettext_lazy("Empty: the server's own, RAGD_S3_ENDPOINT.")),
        Field("access_key", gettext_lazy("Access key"), help=gettext_lazy("Empty: the server's own keys.")),
        Field("secret_key", gettext_lazy("Secret key"), "secret"),
        INCLUDE,
    )

    @classmethod
    def check(cls, settings: Mapping[str, Any], reach: Reach) -> dict[str, Any]:
        endpoint = reach.open_bucket(settings["endpoint"], settings["bucket"], None).endpoint
        return {**settings, "endpoint": endpoint if settings["endpoint"] else ""}

    @classmethod
    def describe(cls, settings: Mapping[str, Any]) -> str:
        at = f" {settings['endpoint']}" if settings["endpoint"] else ""
        return f"s3://{settings['bucket']}/{settings['prefix']}{at}"

    def __init__(self, settings: Mapping[str, Any], secret: str, reach: Reach) -> None:
        super().__init__(settings, secret, reach)
        self._sizes: dict[str, int] = {}

    def list_items(self) -> Iterator[Item]:
        for row in self._open().list_objects(self.settings["prefix"]):
            if matches(row.key, self.settings["include"]):
                self._sizes[row.key] = row.size
                modified = datetime.fromisoformat(row.last_modified) if row.last_modified else None
                url = f"s3://{self.settings['bucket']}/{row.key}"
                yield Item(row.key, f"{row.etag}-{row.size}" if row.etag else "", url=url, modified=modified)

    def fetch(self, item: Item) -> File:
        self.reach.check_size(self._sizes[item.id])
        content, _ = self._open().read(item.id, self.reach.max_bytes, lambda _done, _total: self.reach.pulse())
        return File(item.id.rpartition("/")[2], content)

    def _open(self) -> Bucket:
        keys = BucketKeys(self.settings["access_key"], self.secret) if self.settings["access_key"] else None
        return self.reach.open_bucket(self.settings["endpoint"], self.settings["bucket"], keys)
