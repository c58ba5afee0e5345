"""What is stored."""

from collections_app.models.audit import AuditEvent, AuditHead, AuditLink, Erasure
from collections_app.models.checkpoints import EmbeddedBatch, RecognizedPageCheckpoint
from collections_app.models.connectors import Connector, ConnectorChange, ConnectorRun
from collections_app.models.curation import (
    ChunkFindings,
    ChunkOverlay,
    DocumentRevision,
    DuplicateScan,
    FindingScan,
    NearDuplicate,
)
from collections_app.models.generations import Generation, GenerationDocument, StoredProbe
from collections_app.models.grants import RoleGrant
from collections_app.models.history import PastIndex, StateChange
from collections_app.models.jobs import IngestBatch, IngestJob, Upload
from collections_app.models.layouts import StoredPage
from collections_app.models.library import ApiKey, Chunk, Collection, Document
from collections_app.models.model_settings import ModelSetting
from collections_app.models.operations import (
    IdempotencyRecord,
    Operation,
    OperationFile,
    RetentionSetting,
    WorkerHeartbeat,
)
from collections_app.models.personal import PersonalSetting
from collections_app.models.pricing import ModelPrice
from collections_app.models.queue import Provider, Report
from collections_app.models.sources import FetchedSource, FetchHost
from collections_app.models.trash import TrashedChunk, TrashedDocument, TrashedFile

__all__ = [
    "ApiKey",
    "AuditEvent",
    "AuditHead",
    "AuditLink",
    "Chunk",
    "ChunkFindings",
    "ChunkOverlay",
    "Collection",
    "Connector",
    "ConnectorChange",
    "ConnectorRun",
    "Document",
    "DocumentRevision",
    "DuplicateScan",
    "EmbeddedBatch",
    "Erasure",
    "FetchHost",
    "FetchedSource",
    "FindingScan",
    "Generation",
    "GenerationDocument",
    "IdempotencyRecord",
    "IngestBatch",
    "IngestJob",
    "ModelPrice",
    "ModelSetting",
    "NearDuplicate",
    "Operation",
    "OperationFile",
    "PastIndex",
    "PersonalSetting",
    "Provider",
    "RecognizedPageCheckpoint",
    "Report",
    "RetentionSetting",
    "RoleGrant",
    "StateChange",
    "StoredPage",
    "StoredProbe",
    "TrashedChunk",
    "TrashedDocument",
    "TrashedFile",
    "Upload",
    "WorkerHeartbeat",
]
