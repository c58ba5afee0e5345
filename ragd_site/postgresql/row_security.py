"""Who may read and write which rows: one policy for each table, applied after every migration.

A table is in POLICIES, in OPEN (no text of documents or questions), or closed to `ragd_reader`. Where a row is of
documents, it is hidden from those who may not read one of them now, whenever it was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from collections_app.access.context import PERSONAL, READER
from ragd.store.placement import count_nodes
from ragd.store.store import Connection, execute, fetch_all


def allowed(permission: str, column: str = "collection_id") -> str:
    """The collection with the id `column` gives whoever asks the permission ("runs": to see everybody's runs)."""
    return f"((SELECT ragd_all('{permission}')) OR {column} = ANY ((SELECT ragd_allowed('{permission}'))::bigint[]))"


def everywhere_of(permission: str) -> str:
    """All the collections of the array `collection_ids` give whoever asks the permission."""
    return f"((SELECT ragd_all('{permission}')) OR collection_ids <@ (SELECT ragd_allowed('{permission}'))::bigint[])"


def named(permission: str, column: str = "collection_name", moment: str = "") -> str:
    """The same by the name of a live collection; what came before it was made belongs to another of its name.

    A moment that `collections` has too must name its table, or it would be compared with itself.
    """
    later = f" AND c.created_at <= {moment}" if moment else ""
    given = allowed(permission, "c.id")
    live = f"SELECT FROM collections c WHERE c.name = {column} AND c.deleted_at IS NULL{later} AND {given}"
    return f"((SELECT ragd_all('{permission}')) OR EXISTS ({live}))"


def shows(documents: str, collection: str = "collection_id") -> str:
    """None of the documents, an array of ids, is kept from whoever asks."""
    return f"((SELECT NOT ragd_any_narrowed()) OR NOT ragd_hides({collection}, {documents}))"


def shows_named(documents: str, column: str = "collection_name") -> str:
    live = f"c.name = {column} AND c.deleted_at IS NULL"
    hidden = f"SELECT FROM collections c WHERE {live} AND ragd_hides(c.id, {documents})"
    return f"((SELECT NOT ragd_any_narrowed()) OR NOT EXISTS ({hidden}))"


def within(table: str, row: str, condition: str) -> str:
    """There is a row of the table, visible to whoever asks, with the id `row` gives, for which the condition holds."""
    return f"EXISTS (SELECT FROM {table} p WHERE p.id = {row} AND {condition})"


def parent(table: str, key: str, column: str) -> str:
    """The row that `column` points at is seen. A column that the parent has too must name its table."""
    return f"EXISTS (SELECT FROM {table} parent WHERE parent.{key} = {column})"


@dataclass(frozen=True, slots=True)
class Policy:
    """read, write: conditions in SQL; write is held beside read. "" as write: nothing is written as the bound role."""

    read: str
    write: str = ""


NOBODY = Policy("false")
OF_COLLECTION = Policy(allowed("read"), allowed("write"))
OF_DOCUMENT = Policy(f"{allowed('read')} AND {shows('ARRAY[doc_id]')}", allowed("write"))
EVALUATED = Policy(named("read"), named("evaluate"))
DOCUMENT_ROWS = (
    f"{allowed('administer')} AND 0 = ANY (access) OR {allowed('read')} AND access && (SELECT ragd_own_principals())"
)
RUN_DOCUMENTS = "documents_of_run(retrieved_ids, lists)"
OF_SERVER = "(SELECT ragd_all('administer'))"
OWN_ENTRY = "user_id = (SELECT (ragd_access() ->> 'user')::integer)"
# of a run that searched more than one collection, the others
OTHER_KEYS = "documents_of_keys(o.value -> 'keys')"
ELSEWHERE = (
    "(elsewhere = '{}'::jsonb OR NOT EXISTS (SELECT FROM jsonb_each(elsewhere) o WHERE NOT "
    f"({allowed('read', 'o.key::bigint')} AND {shows(OTHER_KEYS, 'o.key::bigint')})))"
)
SHARED_RUNS = (
    "SELECT unnest(ARRAY[m.run, m.other_run]) FROM chat_messages m JOIN chat_threads t ON t.id = m.thread_id"
    " WHERE t.shared"  # as far as both show
)
ITEM_DOCUMENTS = "documents_of_keys(retrieved_ids) || documents_of_questions(jsonb_build_array(golden))"
BOTH_ITEMS = " AND ".join(
    parent("evaluation_items", "id", f"(arguments ->> '{name}')::bigint") for name in ("bad", "good")
)
# neither of a run that read files of a thread, nor of the own files of another person; their ids may be of threads
NOT_OF_THREADS = (
    "trace_id NOT IN (SELECT runs_of_thread_files())"
    f" AND (NOT starts_with(collection, '{PERSONAL}')"
    f" OR starts_with(collection, '{PERSONAL}' || (SELECT ragd_access() ->> 'user') || '-'))"
)
REACHED = "ARRAY[report #>> '{reached,0}']"  # the document that a scan goes on behind
EXPECTED = "documents_of_list(expected_doc_ids) || documents_of_keys(expected_chunks)"

POLICIES: dict[str, Policy] = {
    "collections": Policy(allowed("read", "id"), allowed("write", "id")),
    "documents": Policy(DOCUMENT_ROWS, allowed("write")),
    "chunks": Policy(DOCUMENT_ROWS),
    "document_access": NOBODY,
    "role_grants": Policy(allowed("administer"), "true"),
    # of documents
    **dict.fromkeys(
        (
            "document_revisions", "chunk_overlays", "chunk_findings", "ingest_jobs", "uploads", "page_layouts",
            "state_changes",
        ),
        OF_DOCUMENT,
    ),
    # deleted ones, for who may write: nothing but the trash reads them
    **dict.fromkeys(
        ("trashed_documents", "trashed_chunks"),
        Policy(f"{allowed('write')} AND {shows('ARRAY[doc_id]')}", allowed("write")),
    ),
    "near_duplicates": Policy(f"{allowed('read')} AND {shows('ARRAY[doc_id, of_doc_id]')}", allowed("write")),
    "sources": Policy(allowed("write"), "true"),
    "source_changes": Policy(f"{allowed('write')} AND {shows('ARRAY[doc_id]')}"),
    "fetched_sources": Policy(parent("documents", "id", "document_id"), "true"),
    "index_version_documents": Policy(
        within("index_versions", "index_version_id", shows("ARRAY[doc_id]", "p.collection_id")), "true"
    ),
    # of collections
    **dict.fromkeys(
        (
            "ingest_batches", "gap_dismissals", "past_indexes", "index_versions", "retrieval_app_calibration",
            "retrieval_app_savedplan",
        ),
        OF_COLLECTION,
    ),
    # queries
    "retrieval_app_queryrun": Policy(
        f"{allowed('read')} AND ({OWN_ENTRY} OR {allowed('runs')} OR id IN ({SHARED_RUNS})) AND {shows(RUN_DOCUMENTS)}"
        f" AND {ELSEWHERE}",
        allowed("ask"),
    ),
    # chat
    "chat_threads": Policy(f"{OWN_ENTRY} OR shared AND {everywhere_of('read')}", OWN_ENTRY),
    "chat_assistants": Policy(everywhere_of("read"), everywhere_of("write")),
    "chat_messages": Policy(
        parent("chat_threads", "id", "thread_id"), within("chat_threads", "thread_id", f"p.{OWN_ENTRY}")
    ),
    "retrieval_app_retrievedchunk": Policy(f"{allowed('read')} AND {shows('ARRAY[doc_id]')}", allowed("ask")),
    "run_scores": Policy(
        f"{parent('retrieval_app_queryrun', 'id', 'query_run')} OR {named('runs', moment='asked_at')}"
        f" AND {shows_named('documents_of_keys(retrieved_ids)')}"
        " AND query_run::text NOT IN (SELECT runs_of_thread_files())",
        "true",
    ),
    "spans": Policy(
        # first what costs least: below it all runs that the asker sees are read once in each statement
        f"({named('administer', 'collection', 'started_at')} OR {OF_SERVER}) AND {NOT_OF_THREADS}"
        f" OR {parent('retrieval_app_queryrun', 'trace_id', 'spans.trace_id')}"
        f" OR {parent('retrieval_app_queryrun', 'id', 'spans.run_id')}"
        # of no query, such as an ingest, which may name documents
        f" OR run_id IS NULL AND (SELECT NOT ragd_any_narrowed())"
        f" AND ({named('runs', 'collection', 'started_at')} OR collection = '' AND trace_is_open(trace_id))"
    ),
    "span_rollups": Policy(f"{named('runs', 'collection', 'hour + make_interval(hours => hours)')}"),
    # evaluation
    **dict.fromkeys(("evaluation_samplings", "promotion_gates", "golden_sets"), EVALUATED),
    "evaluation_runs": Policy(named("read", moment="evaluation_runs.created_at"), named("evaluate")),
    "experiments": Policy(f"{named('read')} AND {shows_named('documents_of_list(doc_ids)')}", named("evaluate")),
    "golden_questions": Policy(
        within("golden_sets", "golden_set_id", shows_named(EXPECTED, "p.collection_name")), "true"
    ),
    "golden_set_versions": Policy(
        within("golden_sets", "golden_set_id", shows_named("documents_of_questions(questions)", "p.collection_name")),
        "true",
    ),
    "board_cards": Policy(parent("golden_sets", "id", "golden_set_id"), "true"),
    "evaluation_items": Policy(
        within("evaluation_runs", "run_id", shows_named(ITEM_DOCUMENTS, "p.collection_name")), "true"
    ),
    "evaluation_comparisons": Policy(
        f"{parent('evaluation_runs', 'id', 'base_id')} AND {parent('evaluation_runs', 'id', 'other_id')}", "true"
    ),
    # they show what the item or the score shows, whose query run may have found more, or be gone
    "review_tasks": Policy(
        f"CASE WHEN item_id IS NOT NULL THEN {named('runs')} AND {parent('evaluation_items', 'id', 'item_id')}"
        f" ELSE query_run IS NULL OR {parent('run_scores', 'query_run', 'review_tasks.query_run')}"
        f" OR {parent('retrieval_app_queryrun', 'id', 'query_run')} END AND {named('read')}",
        "true",
    ),
    "reviews": Policy(parent("review_tasks", "id", "task_id"), "true"),
    # the server's books
    "operations": Policy(
        f"CASE WHEN kind = 'conformance' THEN true WHEN kind = 'bisection' THEN {BOTH_ITEMS}"
        f" WHEN kind IN ('duplicates', 'findings') THEN {named('read', 'subject', 'operations.created_at')}"
        f" AND {shows_named(REACHED, 'subject')}"
        f" WHEN kind = 'judge_check' THEN {named('evaluate', 'subject', 'operations.created_at')}"
        f" WHEN kind = 'sync' THEN {named('write', 'subject', 'operations.created_at')} ELSE"
        f" {named('administer', 'subject')} OR (SELECT ragd_all('administer'))"
        f" OR created_by = (SELECT ragd_access() ->> 'name') AND (subject = '' OR {named('read', 'subject')}) END",
        "true",
    ),
    "work_parts": Policy(
        f"CASE WHEN kind = 'file' THEN {parent('operations', 'id', 'key::uuid')} ELSE false END", "true"
    ),
    "idempotency_records": Policy(
        "owner = 'key:' || (SELECT ragd_access() ->> 'key') OR owner = 'user:' || (SELECT ragd_access() ->> 'user')",
        "true",
    ),
    "api_keys": Policy(
        "(SELECT ragd_all('administer')) OR id = (SELECT (ragd_access() ->> 'key')::bigint)"
        f" OR (SELECT ragd_access() ->> 'key' IS NULL) AND {OWN_ENTRY}"
    ),
    # what single sign-on gave is read before it is known who asks
    "personal_settings": Policy(f"key = 'sign-on' OR {OWN_ENTRY}", f"key = 'sign-on' OR {OWN_ENTRY}"),
    "usage_counts": NOBODY,
    "statuses": Policy(f"kind <> 'result' OR {OF_SERVER}", "true"),
    "django_admin_log": Policy(f"(SELECT ragd_all('administer')) OR {OWN_ENTRY}", "true"),
    **dict.fromkeys(("audit_events", "audit_links"), Policy(OF_SERVER)),
    **dict.fromkeys(("audit_head", "erasures"), NOBODY),
    "alert_rules": Policy(f"{allowed('administer')} OR {OF_SERVER}", "true"),
    **dict.fromkeys(("alerts", "webhooks", "server_settings"), Policy(OF_SERVER, "true")),
}  # fmt: skip

# No text of documents or questions: numbers, settings, accounts. True: the bound role writes them too.
OPEN: dict[str, bool] = {
    **dict.fromkeys(("chunk_stats", "chunk_terms", "chunk_segments", "chunk_postings"), False),
    **dict.fromkeys(("model_prices", "model_settings", "providers", "kept_judgements"), True),
    **dict.fromkeys(("auth_user", "auth_group", "auth_permission", "auth_user_groups", "auth_group_permissions"), True),
    **dict.fromkeys(("auth_user_user_permissions", "django_content_type", "django_session", "django_migrations"), True),
    **dict.fromkeys(("axes_accessattempt", "axes_accessattemptexpiration", "axes_accessfailurelog"), True),
    "axes_accesslog": True,
    # logging in (ragd_site/sign_on)
    **dict.fromkeys(("account_emailaddress", "account_emailconfirmation", "mfa_authenticator"), True),
    **dict.fromkeys(("socialaccount_socialaccount", "socialaccount_socialapp", "socialaccount_socialtoken"), True),
    **dict.fromkeys(("sign_on_cache", "usersessions_usersession"), True),
}

TABLES = """
SELECT c.relname FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') ORDER BY c.relname
"""
CHUNK_TABLES = """
SELECT t.relname, s.collection_id, s.placement <> 'local' FROM chunk_stats s
JOIN pg_class t ON t.oid = to_regclass(format('chunks_c%s_g%s', s.collection_id, s.index_version))
"""
# They tell nothing of a row but their result: under row-level security, PostgreSQL uses an index for a condition of the
# query only if it knows that. A superuser may say so; where ragd is none, docs/permissions.md has the statements.
LEAKPROOF = (
    "arrayoverlap(anyarray, anyarray)",
    "arraycontains(anyarray, anyarray)",
    "ts_match_vq(tsvector, tsquery)",
    "jsonb_contains(jsonb, jsonb)",
)
IS_SUPERUSER = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
MAKE_ROLE = f"""
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{READER}') THEN
        CREATE ROLE {READER} NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE NOINHERIT;
    END IF;
    IF NOT pg_has_role(current_user, '{READER}', 'SET') THEN
        EXECUTE format('GRANT {READER} TO %I', current_user);
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;  -- somebody else made it at the same moment
END $$
"""
# The names of documents in what a row keeps as JSON; a key is "doc_id#chunk_index".
FUNCTIONS = """
CREATE OR REPLACE FUNCTION documents_of_keys(keys jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(SELECT regexp_replace(item #>> '{}', '#[0-9]+$', '')
                 FROM jsonb_path_query(keys, '$[*] ? (@.type() == "string")') AS item);
CREATE OR REPLACE FUNCTION documents_of_list(names jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ARRAY(SELECT item #>> '{}' FROM jsonb_path_query(names, '$[*] ? (@.type() == "string")') AS item);
CREATE OR REPLACE FUNCTION documents_of_run(retrieved jsonb, lists jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN documents_of_keys(retrieved) || documents_of_keys(jsonb_path_query_array(lists, '$.*[*][0]'));
CREATE OR REPLACE FUNCTION documents_of_questions(questions jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN documents_of_list(jsonb_path_query_array(questions, '$[*].expected_doc_ids[*]'))
        || documents_of_keys(jsonb_path_query_array(questions, '$[*].expected_chunks[*]'));
"""


TRACE_FUNCTION = """
-- A trace with a span of a collection whose runs the asker sees: read as the owner, since a policy of spans asks it.
CREATE OR REPLACE FUNCTION trace_is_open(trace text) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    SELECT EXISTS (SELECT FROM spans s JOIN collections c ON c.name = s.collection AND c.created_at <= s.started_at
                   WHERE s.trace_id = trace AND c.deleted_at IS NULL AND ragd_holds('runs', c.id))
$$;
-- The ids and traces of runs that searched a collection with files of threads.
CREATE OR REPLACE FUNCTION runs_of_thread_files() RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
    WITH own AS MATERIALIZED (SELECT DISTINCT collection_id FROM document_access WHERE access[1] < 0)
    SELECT unnest(ARRAY[r.id::text, r.trace_id]) FROM retrieval_app_queryrun r JOIN own USING (collection_id)
    UNION ALL SELECT unnest(ARRAY[r.id::text, r.trace_id]) FROM retrieval_app_queryrun r
    WHERE EXISTS (SELECT FROM own) AND r.elsewhere <> '{}'
      AND r.elsewhere ?| ARRAY(SELECT collection_id::text FROM own)
$$;
"""


def protect(connection: Connection) -> None:
    """Make the role, and give every table its policy; running it again changes nothing. The caller commits."""
    execute(connection, MAKE_ROLE)
    execute(connection, f"GRANT USAGE ON SCHEMA public TO {READER}")
    tables = [name for (name,) in fetch_all(connection, TABLES)]
    execute(connection, FUNCTIONS + (TRACE_FUNCTION if "spans" in tables else ""))
    for table in tables:
        if table in POLICIES:
            _apply(connection, table, POLICIES[table])
        elif table in OPEN:
            execute(
                connection,
                f"GRANT {'SELECT, INSERT, UPDATE, DELETE' if OPEN[table] else 'SELECT'} ON {table} TO {READER}",
            )
    if count_nodes(connection):
        execute(connection, f"ALTER ROLE {READER} LOGIN")  # without a password: the nodes ask the coordinator for none
    if fetch_all(connection, IS_SUPERUSER)[0][0]:
        for function in LEAKPROOF:
            execute(connection, f"ALTER FUNCTION pg_catalog.{function} LEAKPROOF")
    for part, collection_id, elsewhere in fetch_all(connection, CHUNK_TABLES):
        values = {"part": part, "id": collection_id, "elsewhere": elsewhere}
        execute(connection, "SELECT ragd_protect_chunks(%(part)s, %(id)s, %(elsewhere)s)", values)


def _apply(connection: Connection, table: str, policy: Policy) -> None:
    execute(connection, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    for name in ("ragd_read", "ragd_insert", "ragd_update", "ragd_delete"):
        execute(connection, f"DROP POLICY IF EXISTS {name} ON {table}")
    execute(connection, f"CREATE POLICY ragd_read ON {table} FOR SELECT TO {READER} USING ({policy.read})")
    execute(connection, f"GRANT SELECT ON {table} TO {READER}")
    if policy.write:
        execute(connection, f"GRANT INSERT, UPDATE, DELETE ON {table} TO {READER}")
        held = f"({policy.read}) AND ({policy.write})"
        execute(connection, f"CREATE POLICY ragd_insert ON {table} FOR INSERT TO {READER} WITH CHECK ({held})")
        execute(
            connection,
            f"CREATE POLICY ragd_update ON {table} FOR UPDATE TO {READER} USING ({held}) WITH CHECK ({held})",
        )
        execute(connection, f"CREATE POLICY ragd_delete ON {table} FOR DELETE TO {READER} USING ({held})")
