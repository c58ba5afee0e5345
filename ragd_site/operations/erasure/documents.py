"""What was made of the texts of documents: query runs with their spans, what judges and people said of them.

A person erased: the account, the log-ins, what they asked and wrote; their name where it says who did something.

A document, or a whole collection, erased: its text, and whatever was made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from collections_app.audit.services import Actor, erase_what, erase_who, find_telling
from collections_app.collections.deletion import chunk_tables, record_deletion
from collections_app.collections.services import get_collection
from collections_app.documents.services import delete_documents, drop_trashed
from collections_app.documents.stored_documents import with_attachments
from collections_app.errors import ServiceError, UnknownError
from collections_app.index.past_indexes import drop_past_indexes
from collections_app.index.swap import spec_of
from collections_app.models import (
    AuditEvent,
    ChunkFindings,
    ChunkOverlay,
    Collection,
    Document,
    DocumentRevision,
    Erasure,
    IdempotencyRecord,
    IndexVersion,
    IndexVersionDocument,
    IngestJob,
    NearDuplicate,
    Operation,
    StateChange,
    StoredPage,
    TrashedDocument,
    Upload,
    WorkPart,
)
from evaluation_app.failures.bisection import bisections_of
from evaluation_app.golden.questions import Golden
from evaluation_app.golden.sets import digest_of
from evaluation_app.models import (
    EvaluationItem,
    EvaluationRun,
    Experiment,
    GoldenQuestion,
    GoldenSet,
    GoldenSetVersion,
    Review,
    ReviewTask,
    RunScore,
    Span,
)
from ragd import telemetry
from ragd.errors import UnknownCollection
from ragd.identity import check_doc_id
from ragd.store.indexing import delete_document_chunks
from ragd.store.store import execute, fetch_all
from ragd.store.tables import open_index_version
from ragd_site.operations.erasure.ledger import Erasing, erasing, hash_name, make_pseudonym, own_events
from ragd_site.operations.erasure.scrub import Fingerprint, scrub
from retrieval_app.chat.models import forget_runs
from retrieval_app.models import ChatMessage, ChatThread, QueryRun, RetrievedChunk

BATCH = 500
NO_TEXT = {"answer": "", "context": [], "answer_sentences": []}


def drop_runs(ids: Iterable[UUID]) -> Counter[str]:
    """Query runs as a whole: their question, results, sources, answer and citations; with them their spans, scores,
    items' texts and review tasks."""
    counts: Counter[str] = Counter()
    listed = list(dict.fromkeys(ids))
    for start in range(0, len(listed), BATCH):
        chosen = listed[start : start + BATCH]
        rows = QueryRun.objects.filter(pk__in=chosen)
        traces = [trace for trace in rows.values_list("trace_id", flat=True) if trace]
        counts["spans"] += Span.objects.filter(Q(run_id__in=chosen) | Q(trace_id__in=traces)).delete()[0]
        counts["retrieved_chunks"] += RetrievedChunk.objects.filter(run__in=chosen).delete()[0]
        counts["run_scores"] += RunScore.objects.filter(pk__in=chosen).delete()[0]
        counts += blank_items(EvaluationItem.objects.filter(query_run__in=chosen).values_list("pk", flat=True))
        counts["review_tasks"] += ReviewTask.objects.filter(query_run__in=chosen, item=None).delete()[0]
        counts["chat_messages"] += forget_runs(chosen)
        counts["query_runs"] += rows.delete()[0]
    return counts


def blank_items(ids: Iterable[int]) -> Counter[str]:
    """Evaluation items keep their figures and lose every text but the question; reviews keep their verdicts."""
    chosen = list(ids)
    items = EvaluationItem.objects.filter(pk__in=chosen)
    for item in items.only("pk", "golden", "details"):
        golden = dict(item.golden) | ({"expected_answer": ""} if "expected_answer" in item.golden else {})
        items.filter(pk=item.pk).update(
            golden=golden, annotation={}, details={}, contributions=[], error="", judge_usage={}, **NO_TEXT
        )
    tasks = ReviewTask.objects.filter(item__in=chosen)
    Review.objects.filter(task__in=tasks).update(note="", correction="", unsupported=[])
    return Counter(
        evaluation_items=len(chosen),
        review_tasks=tasks.update(expected_answer="", **NO_TEXT),
        operations=bisections_of(chosen).delete()[0],
    )


def forget_expectations(collection_name: str, doc_ids: Sequence[str]) -> Counter[str]:
    """Golden questions over the documents lose them and, with them, the expected answer; suggestions made of them go.
    Earlier versions of the sets too, whose digests follow."""
    counts: Counter[str] = Counter()
    gone = frozenset(doc_ids)
    for golden_set in GoldenSet.objects.filter(collection_name=collection_name):
        for row in golden_set.questions.all():
            golden = Golden.of(row)
            if not gone.intersection(golden.relevant_docs):
                continue
            counts["golden_questions"] += 1
            if row.suggested:
                row.delete()
                continue
            values = _without(golden, gone)
            marks = {key: mark for key, mark in row.chunk_marks.items() if key in values["expected_chunks"]}
            GoldenQuestion.objects.filter(pk=row.pk).update(**values, chunk_marks=marks)
        for version in golden_set.versions.all():
            questions = [Golden.from_dict(item) for item in version.questions]
            if any(gone.intersection(golden.relevant_docs) for golden in questions):
                kept = [
                    Golden.from_dict(golden.as_dict() | _without(golden, gone))
                    if gone.intersection(golden.relevant_docs)
                    else golden
                    for golden in questions
                ]
                write_version(version, kept)
                counts["golden_set_versions"] += 1
    return counts


def write_version(version: GoldenSetVersion, questions: Sequence[Golden]) -> None:
    """With the digest of what it holds now; that of the set too, where it is the newest."""
    digest = digest_of(questions)
    GoldenSetVersion.objects.filter(pk=version.pk).update(
        questions=[golden.as_dict() for golden in questions], digest=digest
    )
    GoldenSet.objects.filter(pk=version.golden_set_id, version=version.version).update(digest=digest)


def _without(golden: Golden, gone: frozenset[str]) -> dict[str, Any]:
    return {
        "expected_doc_ids": [doc for doc in golden.expected_doc_ids if doc not in gone],
        "expected_chunks": [key for key in golden.expected_chunks if key.rpartition("#")[0] not in gone],
        "expected_answer": "",
        "notes": "",
    }


def forget_answers() -> Counter[str]:
    """Answers kept for repeated requests: they live for a day, and nobody can tell whose texts they hold."""
    return Counter(idempotency_records=IdempotencyRecord.objects.exclude(status=None).delete()[0])


# Columns that say who did something.
NAME_COLUMNS = r"""
SELECT c.relname, a.attname
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND t.typname IN ('text', 'varchar')
  AND c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'documents'::regclass)
  AND c.relname NOT IN ('audit_events', 'auth_user')
  AND (a.attname ~ '_by$' OR a.attname IN ('assignee', 'reviewer_name'))
ORDER BY 1, 2
"""
RENAME = """
UPDATE "{table}" SET "{column}" = %(new)s || CASE WHEN "{column}" = %(old)s THEN '' ELSE ', (erased)' END
WHERE "{column}" = %(old)s OR "{column}" LIKE %(on_behalf)s
"""
RENAME_KEPT = """
UPDATE state_changes SET kept = replace(kept::text, to_jsonb(%(old)s::text)::text, to_jsonb(%(new)s::text)::text)::jsonb
WHERE kept::text LIKE '%%' || to_jsonb(%(old)s::text)::text || '%%'
"""
# "cancelled by NAME", and who made a change that a report tells of
RENAME_CANCELLED = """
UPDATE "{table}" SET error = 'cancelled by ' || %(new)s WHERE error = 'cancelled by ' || %(old)s
"""
RENAME_IN = """
UPDATE {table}
SET {column} = replace({column}::text, to_jsonb(%(old)s::text)::text, to_jsonb(%(new)s::text)::text)::jsonb
WHERE {column}::text LIKE '%%' || to_jsonb(%(old)s::text)::text || '%%'
"""
PERSONAL = ("queryrun", "reviewtask", "review", "runscore", "boardcard", "goldenquestion", "chatthread")


def erase_person(user: User, *, actor: Actor = None, dry_run: bool = False, pseudonym: str = "") -> Erasing:
    """The account goes with its sessions and log-ins, its runs with question, answer and spans, its feedback as text.

    Verdicts stay, under a pseudonym, which also stands wherever a record says who made it. The audit log keeps what
    was done, under the pseudonym and without the address.
    """
    pseudonym = pseudonym or make_pseudonym()
    username, pk = user.get_username(), user.pk
    subject = {"person": pseudonym, "user_id": pk}
    started = Erasing(Erasure.Kind.PERSON, subject, hash_name(username))
    with erasing(started, actor=actor, dry_run=dry_run) as erasure:
        runs = QueryRun.objects.filter(user=user)
        fingerprint = Fingerprint(_texts_of(user), exact=[name for name in (user.email, user.get_full_name()) if name])
        erasure.add(drop_runs(runs.values_list("pk", flat=True)))
        erasure.add({"chat_threads": ChatThread.objects.of(user).delete()[0]})
        erasure.add(_drop_log_ins(user))
        own = Q(reviewer=user) | Q(reviewer_name=username) | Q(reviewer_name__startswith=f"{username}, ")
        erasure.add({"reviews": Review.objects.filter(own).update(note="", correction="")})
        spans = Span.objects.filter(attributes__contains={telemetry.USER_ID: username})
        erasure.add({"spans": spans.delete()[0]})
        erasure.add(_rename(username, pseudonym))
        erasure.add(forget_answers())
        erasure.add(scrub(fingerprint))
        by_them = AuditEvent.objects.filter(actor_kind="user", actor_id=str(pk))
        named = AuditEvent.objects.filter(actor_name=username).exclude(actor_kind="key")
        telling = AuditEvent.objects.filter(pk__in=find_telling(fingerprint.tells))
        erasure.what += erase_what(own_events("user", [str(pk)]), pseudonym)
        erasure.what += erase_what(by_them.filter(subject_kind__in=PERSONAL)) + erase_what(telling)
        erasure.who += erase_who(by_them | named, pseudonym)
        user.delete()
        erasure.add({"accounts": 1})
    return erasure


def find_user(username: str) -> User:
    """Raises ServiceError 404."""
    found = get_user_model()._default_manager.filter(username=username).first() if "\x00" not in username else None
    if not isinstance(found, User):
        raise UnknownError("user", f"there is no user {username!r}", field="username")
    return found


def erase_person_again(entry: dict[str, Any], actor: Actor = None) -> Erasing | None:
    """By the hash of the name: the name itself is kept nowhere. None where nobody has it."""
    for user in User.objects.all():
        if hash_name(user.get_username()) == entry["name_hash"]:
            return erase_person(user, actor=actor, pseudonym=str(entry["subject"]["person"]))
    return None


def _texts_of(user: User) -> list[str]:
    """What they asked and wrote."""
    texts = list(QueryRun.objects.filter(user=user).values_list("query", flat=True))
    texts += ChatMessage.objects.filter(thread__user=user).values_list("question", flat=True)
    for note, correction in Review.objects.filter(reviewer=user).values_list("note", "correction"):
        texts += [note, correction]
    return texts


def _drop_log_ins(user: User) -> Counter[str]:
    counts: Counter[str] = Counter()
    for model in (AccessAttempt, AccessFailureLog, AccessLog):
        counts[model._meta.db_table] = model.objects.filter(username=user.get_username()).delete()[0]
    for session in Session.objects.all().iterator():
        if session.get_decoded().get("_auth_user_id") == str(user.pk):
            session.delete()
            counts["sessions"] += 1
    return counts


def _rename(old: str, new: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    escaped = old.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    params = {"old": old, "new": new, "on_behalf": f"{escaped}, %"}
    for table, column in fetch_all(connection, NAME_COLUMNS):
        counts[str(table)] += execute(connection, RENAME.format(table=table, column=column), params)
    counts["state_changes"] += execute(connection, RENAME_KEPT, {"old": old, "new": new})
    for table in ("index_versions", "ingest_jobs", "operations"):
        counts[table] += execute(connection, RENAME_CANCELLED.format(table=table), {"old": old, "new": new})
    bisections = RENAME_IN.format(table="operations", column="report") + " AND kind = 'bisection'"
    for table, statement in (
        ("operations", bisections), ("collections", RENAME_IN.format(table="collections", column="trash"))
    ):  # fmt: skip
        counts[table] += execute(connection, statement, {"old": old, "new": new})
    return counts


LONG_AGO = timedelta(days=36_500)
# operations whose reports name documents and questions
REPORTING = (Operation.Kind.BISECTION, Operation.Kind.DUPLICATES, Operation.Kind.FINDINGS)
READ_AT_ONCE = 200

CHUNK_TEXTS = "SELECT content FROM {table} WHERE doc_id = ANY(%(ids)s)"
DROP_CHUNKS = "DELETE FROM {table} WHERE doc_id = ANY(%(ids)s)"
# nobody can be such a thread any more, so nobody reads them
FILES_OF_GONE_THREADS = """
SELECT a.collection_id, a.doc_id FROM document_access a JOIN collections c ON c.id = a.collection_id
WHERE c.name LIKE 'my-files-%' AND c.deleted_at IS NULL
  AND a.doc_id >= 'thread-' AND a.doc_id < 'thread.' AND a.access[1] < 0
  AND NOT EXISTS (SELECT FROM chat_threads t WHERE t.id::text = substr(a.doc_id, 8, 36))
ORDER BY a.collection_id, a.doc_id LIMIT 100
"""
FORGET_LIST = "DELETE FROM document_access WHERE collection_id = %(collection)s AND doc_id = %(doc_id)s"
# ids of results are "doc_id#chunk_index"
RUNS_BY_RESULTS = """
SELECT r.id FROM retrieval_app_queryrun r
WHERE (r.collection_id = %(collection)s OR r.elsewhere ? %(collection)s::text)
  AND EXISTS (
    SELECT FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(r.retrieved_ids) = 'array' THEN r.retrieved_ids ELSE '[]' END) AS found (key)
    WHERE regexp_replace(found.key, '#[0-9]+$', '') = ANY(%(ids)s))
"""
ITEMS_BY_RESULTS = """
SELECT i.id FROM evaluation_items i JOIN evaluation_runs e ON e.id = i.run_id
WHERE e.collection_name = %(name)s AND EXISTS (
    SELECT FROM jsonb_array_elements_text(
        CASE WHEN jsonb_typeof(i.retrieved_ids) = 'array' THEN i.retrieved_ids ELSE '[]' END) AS found (key)
    WHERE regexp_replace(found.key, '#[0-9]+$', '') = ANY(%(ids)s))
"""


def erase_document(collection: Collection, doc_id: str, *, actor: Actor = None, dry_run: bool = False) -> Erasing:
    """The document, what was attached to it and every trace of their texts, also where it was deleted before.

    Runs that retrieved it are deleted as a whole, evaluation items keep their figures. Raises ServiceError 404 where
    nothing is known of it.
    """
    names = with_attachments(collection, [check_doc_id(doc_id)])
    if not _is_known(collection, names):
        raise UnknownError(
            "document", f"nothing is stored of a document {doc_id!r} of collection {collection.name!r}", field="doc_id"
        )
    subject = {"collection": collection.name, "doc_id": doc_id}
    with erasing(Erasing(Erasure.Kind.DOCUMENT, subject), actor=actor, dry_run=dry_run) as erasure:
        fingerprint = _fingerprint(collection, names)
        pks = _primary_keys(collection, names)
        erasure.add(_drop_traces(collection, names))
        erasure.add(_drop_document(collection, names, actor))
        erasure.add(_drop_reports(collection.name, names))
        erasure.add(forget_expectations(collection.name, names))
        erasure.add(forget_answers())
        erasure.add(scrub(fingerprint))
        telling = AuditEvent.objects.filter(pk__in=find_telling(fingerprint.tells))
        erasure.what += erase_what(own_events("document", pks)) + erase_what(telling)
    return erasure


def erase_files_of_threads() -> int:
    """The files of threads that are gone, deleted or past their retention; returns how many. At most 100 at once."""
    rows = fetch_all(connection, FILES_OF_GONE_THREADS)
    for collection_id, doc_id in rows:
        collection = Collection.objects.get(pk=collection_id)
        if _is_known(collection, [doc_id]):  # one that was attached went with its document
            erase_document(collection, doc_id)
        execute(connection, FORGET_LIST, {"collection": collection_id, "doc_id": doc_id})
    return len(rows)


def _is_known(collection: Collection, names: Sequence[str]) -> bool:
    scope = {"collection_id": collection.pk, "doc_id__in": names}
    return any(
        model._default_manager.filter(**scope).exists()
        for model in (Document, DocumentRevision, StateChange, Upload, TrashedDocument, RetrievedChunk, IngestJob)
    )


def _primary_keys(collection: Collection, names: Sequence[str]) -> list[str]:
    scope = {"collection_id": collection.pk, "doc_id__in": names}
    live = Document.objects.filter(**scope).values_list("pk", flat=True)
    gone = StateChange.objects.filter(**scope).exclude(document_id=None).values_list("document_id", flat=True)
    return [str(pk) for pk in {*live, *gone}]


def _fingerprint(collection: Collection, names: Sequence[str]) -> Fingerprint:
    """Of every text that was stored of the documents, less what other documents of the collection say too."""
    result = Fingerprint(_texts(collection, names))
    others = Document.objects.filter(collection=collection).exclude(doc_id__in=names).values_list("text", flat=True)
    for text in others.iterator(chunk_size=READ_AT_ONCE):
        result.forget(text)
    return result


def _texts(collection: Collection, names: Sequence[str]) -> Iterator[str]:
    scope = {"collection_id": collection.pk, "doc_id__in": names}
    for document in Document.objects.filter(**scope).iterator(chunk_size=1):
        yield from (document.text, document.title)
    for row in DocumentRevision.objects.filter(**scope).values("text", "title", "chunks").iterator(chunk_size=1):
        yield from _strings([row["text"], row["title"], row["chunks"]])
    for overlay in ChunkOverlay.objects.filter(**scope):
        yield from (overlay.content, overlay.anchor_text)
    for kept in StateChange.objects.filter(**scope).exclude(kept=None).values_list("kept", flat=True):
        yield from _strings(kept)
    for trashed in TrashedDocument.objects.filter(**scope).values("document", "revisions", "overlays").iterator():
        yield from _strings(list(trashed.values()))
    for table in chunk_tables(collection.pk):
        for (content,) in fetch_all(connection, CHUNK_TEXTS.format(table=table), {"ids": list(names)}):
            yield str(content)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _drop_traces(collection: Collection, names: Sequence[str]) -> Counter[str]:
    """Runs that retrieved or cited them, with all that hangs on them; spans of their ingest."""
    params = {"collection": collection.pk, "name": collection.name, "ids": list(names)}
    found = RetrievedChunk.objects.filter(collection_id=collection.pk, doc_id__in=names)
    ids: set[UUID] = set(found.values_list("run_id", flat=True).distinct())
    ids |= {run for (run,) in fetch_all(connection, RUNS_BY_RESULTS, params)}
    counts = drop_runs(ids)
    counts += blank_items(item for (item,) in fetch_all(connection, ITEMS_BY_RESULTS, params))
    for name in names:
        ingests = Span.objects.filter(attributes__contains={telemetry.DOCUMENT_ID: name}, collection=collection.name)
        traces = list(ingests.values_list("trace_id", flat=True).distinct())
        counts["spans"] += Span.objects.filter(trace_id__in=traces).delete()[0]
    return counts


def _drop_document(collection: Collection, names: Sequence[str], actor: Actor) -> Counter[str]:
    """The documents with every revision, file, page and chunk, in index versions that do not serve too."""
    scope = {"collection_id": collection.pk, "doc_id__in": list(names)}
    jobs = IngestJob.objects.filter(**scope)
    files = set(Upload.objects.filter(**scope).values_list("sha256", flat=True))
    batches = set(jobs.exclude(batch=None).values_list("batch_id", flat=True))
    archives = IngestJob.objects.filter(batch__in=batches, kind=IngestJob.Kind.ARCHIVE).exclude(upload=None)
    archive_ids = set(archives.values_list("upload_id", flat=True))
    job_ids = list(jobs.values_list("pk", flat=True))
    counts = Counter(delete_documents(collection, names, actor=actor))
    counts["trashed_documents"] = drop_trashed(collection, names)
    counts["archives"] = Upload.objects.filter(pk__in=archive_ids).delete()[0]
    parts = WorkPart.objects.filter(collection_id=collection.pk)
    counts["recognized_pages"] = parts.filter(kind=WorkPart.Kind.PAGE, digest__in=files).delete()[0]
    counts["embedded_batches"] = parts.filter(kind=WorkPart.Kind.VECTORS, key__in=map(str, job_ids)).delete()[0]
    counts["jobs"] = IngestJob.objects.filter(pk__in=job_ids).delete()[0]
    for model in (StateChange, StoredPage, ChunkFindings, DocumentRevision, ChunkOverlay):
        counts[model._meta.db_table] = model._default_manager.filter(**scope).delete()[0]
    near = NearDuplicate.objects.filter(collection_id=collection.pk)
    counts["near_duplicates"] = near.filter(Q(doc_id__in=names) | Q(of_doc_id__in=names)).delete()[0]
    counts["past_indexes"] = drop_past_indexes(timezone.now() + LONG_AGO, collection)
    _drop_from_index_versions(collection, names)
    for table in chunk_tables(collection.pk):
        counts["chunks"] += execute(connection, DROP_CHUNKS.format(table=table), {"ids": list(names)})
    counts["operation_files"] = _drop_files(collection.name)
    return counts


def _drop_from_index_versions(collection: Collection, names: Sequence[str]) -> None:
    """With their share of the statistics."""
    current = Collection.objects.get(pk=collection.pk)
    tables = set(chunk_tables(collection.pk))
    for index_version in IndexVersion.objects.filter(collection=collection).exclude(number=current.index_version):
        if f"chunks_c{collection.pk}_g{index_version.number}" in tables:
            store = open_index_version(
                connection,
                collection.pk,
                index_version.number,
                spec_of(index_version),
                exact_threshold=settings.RAGD_EXACT_THRESHOLD,
            )
            delete_document_chunks(names, store)
            IndexVersionDocument.objects.filter(index_version=index_version, doc_id__in=names).delete()


def _drop_files(collection_name: str) -> int:
    """Files of imports and exports of the collection that nobody works on."""
    ended = Operation.objects.filter(subject=collection_name).exclude(finished_at=None)
    keys = [str(pk) for pk in ended.values_list("pk", flat=True)]
    return WorkPart.objects.filter(kind=WorkPart.Kind.FILE, key__in=keys).delete()[0]


def erase_collection(collection: Collection, *, actor: Actor = None, dry_run: bool = False) -> Erasing:
    """The collection and every trace of it: runs, spans, evaluations, reviews, golden sets. The audit log keeps that it
    was there, and its name."""
    subject = {"collection": collection.name}
    with erasing(Erasing(Erasure.Kind.COLLECTION, subject), actor=actor, dry_run=dry_run) as erasure:
        names = list(Document.objects.filter(collection=collection).values_list("doc_id", flat=True))
        fingerprint = Fingerprint(_texts(collection, names))
        runs = QueryRun.objects.filter(
            Q(collection_id=collection.pk)
            | Q(collection_name=collection.name)
            | Q(elsewhere__has_key=str(collection.pk))
        )
        erasure.add(drop_runs(runs.values_list("pk", flat=True)))
        erasure.add(_drop_evaluations(collection.name))
        erasure.add(forget_answers())
        erasure.add({"operation_files": _drop_files(collection.name)})
        report = record_deletion(collection, actor=actor).report
        erasure.add({name: count for name, count in report["before"].items() if isinstance(count, int)})
        erasure.add(scrub(fingerprint))
        rows = AuditEvent.objects.filter(Q(collection_id=collection.pk) | Q(collection_name=collection.name))
        kept = rows.exclude(subject_kind="collection").exclude(action__startswith="erase.")
        telling = AuditEvent.objects.filter(pk__in=find_telling(fingerprint.tells))
        erasure.what += erase_what(kept) + erase_what(telling)
    return erasure


def _drop_evaluations(name: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for model in (ReviewTask, RunScore, EvaluationRun, Experiment, GoldenSet):
        rows = model._default_manager.filter(collection_name=name)
        counts[model._meta.db_table] = rows.delete()[0]
    counts["evaluation_items"] = EvaluationItem.objects.filter(run__collection_name=name).delete()[0]
    counts["spans"] = Span.objects.filter(collection=name).delete()[0]
    counts["operations"] = Operation.objects.filter(kind__in=REPORTING, subject=name).delete()[0]
    return counts


def _drop_reports(name: str, doc_ids: Sequence[str]) -> Counter[str]:
    """Reports of operations that name one of these documents of a collection."""
    rows = Operation.objects.filter(kind__in=REPORTING, subject=name).values_list("pk", "report")
    telling = [pk for pk, report in rows if not set(doc_ids).isdisjoint(_texts_in(report))]
    return Counter(operations=Operation.objects.filter(pk__in=telling).delete()[0])


def _texts_in(value: Any) -> Iterator[str]:
    """Every text of a JSON value, without the keys of its objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)


def erase_document_again(entry: dict[str, Any], actor: Actor = None) -> Erasing | None:
    """None where the collection or the document is not there."""
    try:
        collection = get_collection(str(entry["subject"]["collection"]))
        return erase_document(collection, str(entry["subject"]["doc_id"]), actor=actor)
    except (ServiceError, UnknownCollection):
        return None


def erase_collection_again(entry: dict[str, Any], actor: Actor = None) -> Erasing | None:
    try:
        return erase_collection(get_collection(str(entry["subject"]["collection"])), actor=actor)
    except (ServiceError, UnknownCollection):
        return None
