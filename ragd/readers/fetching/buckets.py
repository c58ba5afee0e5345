"""S3-compatible servers: what a prefix of a bucket holds, and one object of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import urllib3

from ragd.errors import InvalidInput
from ragd.readers.fetching.addresses import FetchError, Guard, too_large
from ragd.readers.fetching.client import CONNECT_MAX_S, PinnedPool

READ_AT_ONCE = 262_144
OBJECTS_MAX = 20_000
LIST_MAX_S = 120.0
LIST_MAX_BYTES = 16_000_000  # of one answer; one names at most 1,000 objects
NOT_THERE = ("NoSuchBucket", "NoSuchKey", "ResourceNotFound")
CLOSED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
CODE = re.compile(r"Response code: (\d+)")
PASSING = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeTooSkewed")


@dataclass(frozen=True, slots=True)
class BucketObject:
    """One object of a listing. size in bytes; etag without quotes; last_modified in ISO 8601, "" when not told."""

    key: str
    size: int
    etag: str
    last_modified: str


@dataclass(frozen=True, slots=True)
class BucketKeys:
    """What opens a bucket; nothing for one that is open to everybody."""

    access: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


class BoundedPool(PinnedPool):
    """An answer that is read whole, as lists are, has an end: in bytes, and all of them together in time."""

    def __init__(self, guard: Guard | None, **values: Any) -> None:
        super().__init__(guard, **values)
        self.ends_at = time.monotonic() + LIST_MAX_S

    def urlopen(  # type: ignore[override]  # as its own superclass has it
        self, method: str, url: str, redirect: bool = True, *, preload_content: bool = True, **values: Any
    ) -> urllib3.BaseHTTPResponse:
        if not preload_content:
            return super().urlopen(method, url, redirect, preload_content=False, **values)
        self._check_time()
        answer = super().urlopen(method, url, redirect, preload_content=False, **values)
        body = bytearray()
        try:
            while part := answer.read1(READ_AT_ONCE, decode_content=True):
                body += part
                self._check_time()
                if len(body) > LIST_MAX_BYTES:
                    raise FetchError("server_failed", f"the server's list has more than {LIST_MAX_BYTES:,} bytes")
        finally:
            answer.close()
            answer.release_conn()
        return urllib3.HTTPResponse(
            bytes(body), answer.headers, answer.status, reason=answer.reason, decode_content=False
        )

    def _check_time(self) -> None:
        if time.monotonic() > self.ends_at:
            raise FetchError(
                "timeout", f"the server did not tell what it has within {LIST_MAX_S:g} s; take a longer prefix"
            )


class Bucket:
    """A bucket on a server. endpoint: http(s)://host[:port]. guard: None for a server that may be anywhere."""

    pool_class: type[PinnedPool] = BoundedPool

    def __init__(
        self, endpoint: str, name: str, *, guard: Guard | None, keys: BucketKeys, region: str, timeout_s: float
    ) -> None:
        from minio import Minio  # most servers never open a bucket

        self.endpoint, self.name, self.timeout_s = endpoint, name, timeout_s
        parts = urlsplit(endpoint)
        pool = self.pool_class(
            guard,
            timeout=urllib3.Timeout(connect=CONNECT_MAX_S, read=timeout_s),
            retries=urllib3.Retry(total=1, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504]),
            maxsize=1,
        )
        self._client = Minio(
            parts.netloc,
            access_key=keys.access or None,
            secret_key=keys.secret if keys.access else None,
            session_token=(keys.token or None) if keys.access else None,
            secure=parts.scheme == "https",
            region=region or None,
            http_client=pool,
        )

    def list_objects(self, prefix: str) -> list[BucketObject]:
        """What lies under a prefix, by key, without folders; page after page. At most 20,000, else InvalidInput.

        Raises FetchError, which says what to do, when the server refuses or cannot be reached.
        """
        with self._told():
            objects = self._client.list_objects(self.name, prefix=prefix or None, recursive=True)
            rows = (row for row in objects if row.object_name and not row.object_name.endswith("/"))
            result = [
                BucketObject(
                    key=str(row.object_name),
                    size=int(row.size or 0),
                    etag=(row.etag or "").strip('"'),
                    last_modified=row.last_modified.isoformat() if row.last_modified else "",
                )
                for row in islice(rows, OBJECTS_MAX + 1)
            ]
        if len(result) > OBJECTS_MAX:
            raise InvalidInput(
                f"there are more than {OBJECTS_MAX:,} objects under {prefix!r}; take one part after the other",
                field="prefix",
            )
        return result

    def read(
        self, key: str, max_bytes: int, on_bytes: Callable[[int, int], None]
    ) -> tuple[bytes, Mapping[str, str]]:  # fmt: skip
        """(content, headers) of one object. on_bytes: told (bytes so far, bytes in all). Raises FetchError."""
        with self._told(key):
            response = self._client.get_object(self.name, key)
            try:
                return self._read_body(response, max_bytes, on_bytes), response.headers
            finally:
                response.close()
                response.release_conn()

    def _read_body(self, response: Any, limit: int, on_bytes: Callable[[int, int], None]) -> bytes:
        total = int(response.headers.get("Content-Length") or 0)
        if total > limit:
            raise too_large(limit)
        ends_at = time.monotonic() + self.timeout_s
        body = bytearray()
        while part := response.read1(READ_AT_ONCE, decode_content=False):
            body += part
            if len(body) > limit:
                raise too_large(limit)
            if time.monotonic() > ends_at:
                raise FetchError(
                    "timeout",
                    f"it did not come whole within {self.timeout_s:g} s (RAGD_FETCH_TIMEOUT_S)",
                    retryable=True,
                )
            on_bytes(len(body), total)
        if not body:
            raise FetchError("empty_content", "the object is empty")
        return bytes(body)

    @contextmanager
    def _told(self, key: str = "") -> Iterator[None]:
        """Whatever the client raises, as a FetchError that says what to do."""
        from minio.error import InvalidResponseError, MinioException, S3Error

        at = f"the bucket {self.name!r} at {self.endpoint}"
        try:
            yield
        except S3Error as error:
            raise _explain(str(error.code), at, key) from None
        except InvalidResponseError as error:
            code = CODE.search(str(error))
            if code and code[1] in ("401", "403"):
                raise _explain("AccessDenied", at, key) from None
            raise _no_answer(at, error) from None
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _no_answer(at, error) from None
        except ValueError as error:  # a name that no bucket can have
            raise InvalidInput(f"bucket: {error}", field="bucket") from None


def _no_answer(at: str, error: Exception) -> FetchError:
    silent = isinstance(error, (urllib3.exceptions.HTTPError, OSError))
    message = "does not answer" if silent else "gave no valid answer"
    return FetchError("unreachable", f"{at} {message}; check the endpoint, or try again later", retryable=True)


def _explain(code: str, at: str, key: str) -> FetchError:
    if code in NOT_THERE:
        what = f"the object {key!r}" if key and code != "NoSuchBucket" else "what was asked for"
        return FetchError("not_found", f"{what} is not in {at} ({code}); check the names")
    if code in CLOSED:
        return FetchError(
            "not_allowed",
            f"{at} does not let this server in ({code}); it needs a key that may list and read it. The "
            "server's own, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, is used at RAGD_S3_ENDPOINT only",
        )
    return FetchError("server_failed", f"{at} answered {code}; it may work later", retryable=code in PASSING)
