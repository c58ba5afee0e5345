"""What is stored."""

from collections_app.access.models import PersonalSetting, RoleGrant
from collections_app.audit.models import AuditEvent, AuditHead, AuditLink, Erasure
from collections_app.collections.models import ApiKey, Chunk, Collection, Document
from collections_app.documents.models import (
    ChunkFindings,
    ChunkOverlay,
    DocumentRevision,
    NearDuplicate,
    StoredPage,
    TrashedChunk,
    TrashedDocument,
)
from collections_app.endpoints.models import ModelPrice, ModelSetting
from collections_app.index.models import IndexVersion, IndexVersionDocument, PastIndex, StateChange
from collections_app.jobs.models import IngestBatch, IngestJob, Upload, WorkPart
from collections_app.jobs.operation_models import IdempotencyRecord, Operation, Provider, ServerSetting, Status
from collections_app.sources.models import FetchedSource, Source, SourceChange

__all__ = [
    "ApiKey", "AuditEvent", "AuditHead", "AuditLink", "Chunk", "ChunkFindings", "ChunkOverlay", "Collection",
    "Document", "DocumentRevision", "Erasure", "FetchedSource", "IdempotencyRecord", "IndexVersion",
    "IndexVersionDocument", "IngestBatch", "IngestJob", "ModelPrice", "ModelSetting", "NearDuplicate", "Operation",
    "PastIndex", "PersonalSetting", "Provider", "RoleGrant", "ServerSetting", "Source", "SourceChange", "StateChange",
    "Status", "StoredPage", "TrashedChunk", "TrashedDocument", "Upload", "WorkPart",
]  # fmt: skip
