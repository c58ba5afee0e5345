"""What can go wrong in the library. One base class; every message says what was expected, what came and what to do."""

from __future__ import annotations


class RagdError(Exception):
    """Base of every error that the library raises on purpose.

    `field` names the input that was wrong, when one input was.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInput(RagdError):
    """A value that the caller gave breaks the contract (HTTP 422)."""


class EmptyContent(InvalidInput):
    """There is no text to index after normalization (HTTP 400)."""


class DimensionMismatch(InvalidInput):
    """A vector has another length than the collection's `embed_dims` (HTTP 400)."""


class LexicalDisabled(InvalidInput):
    """Hybrid or lexical search on a collection that keeps no lexical index (HTTP 400)."""


class UnknownCollection(RagdError):
    """No collection has that name or id (HTTP 404)."""


class IndexVersionChanged(RagdError):
    """Another index version of the collection serves than the store was opened for; open it again (HTTP 409)."""


class UnsupportedDatabase(RagdError):
    """The server or its pgvector is too old, or the schema is missing."""


class EmbedderError(RagdError):
    """The embedder gave no usable answer (HTTP 502). `kind` says how it failed; `retryable` whether later may work.

    retry_after_s: seconds that the endpoint asked to wait; None when it did not say.
    """

    def __init__(
        self, message: str, *, kind: str, retryable: bool, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.kind = kind
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class QueryVectorError(EmbedderError):
    """The embedder gave no vector that a query can be searched by, whatever the cause (HTTP 502)."""


class RerankerError(RagdError):
    """The reranker gave no usable scores (HTTP 502). `retryable` says whether later may work."""

    def __init__(self, message: str, *, retryable: bool = True, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.retryable = retryable
