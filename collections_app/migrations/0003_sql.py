"""What models cannot say of the service's tables: storage, a reference that the database follows, a table without a log,
and the triggers that keep the audit log as it was written and chain it when a transaction commits."""

from django.db import migrations

# vectors are noise to a compressor, and files are packed already
UNCOMPRESSED = """
ALTER TABLE work_parts ALTER COLUMN content SET STORAGE EXTERNAL;
"""
# whoever deletes a document, by whatever statement, leaves nothing of it behind
FOLLOW_DOCUMENT = """
ALTER TABLE fetched_sources ADD CONSTRAINT fetched_sources_document_fk
    FOREIGN KEY (document_id) REFERENCES documents (id) ON DELETE CASCADE
"""
# Unlogged: what was counted in this minute and on this day may be lost with the server, and no request waits for a disk.
COUNTS = """
CREATE UNLOGGED TABLE usage_counts (
    holder    text COLLATE "C" PRIMARY KEY,  -- "key:<id>", "user:<id>" or "address:<address>"
    minute    timestamptz NOT NULL,
    requests  integer NOT NULL,              -- in that minute
    day       date NOT NULL,
    tokens    bigint NOT NULL                -- on that day
) WITH (fillfactor = 50);
"""
# Events are written once. An erasure, which says so, may empty the columns of a person or of a text and forget the salt.
GUARD = """
CREATE FUNCTION audit_refuse_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'audit_events' AND current_setting('ragd.audit_erasure', true) = 'on' THEN
        IF (NEW.id, NEW.at, NEW.actor_kind, NEW.channel, NEW.request_id, NEW.action, NEW.subject_kind, NEW.subject_id,
            NEW.of_collection_id, NEW.collection_name, NEW.outcome, NEW.who_digest, NEW.what_digest, NEW.digest)
           IS NOT DISTINCT FROM
           (OLD.id, OLD.at, OLD.actor_kind, OLD.channel, OLD.request_id, OLD.action, OLD.subject_kind, OLD.subject_id,
            OLD.of_collection_id, OLD.collection_name, OLD.outcome, OLD.who_digest, OLD.what_digest, OLD.digest)
           AND (NEW.who_salt IS NULL OR NEW.what_salt IS NULL)
        THEN
            RETURN NEW;
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'audit_links' THEN
        IF OLD.position IS NULL THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'rows of % are written once: % is refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_events_once BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_links_once BEFORE UPDATE OR DELETE ON audit_links
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_events_kept BEFORE TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_links_kept BEFORE TRUNCATE ON audit_links
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
"""

# Both steps run at the commit, the second behind every other deferred check of the transaction: whoever holds the end of
# the chain waits for nobody any more, so two transactions cannot wait for each other here.
CHAIN = """
CREATE FUNCTION audit_queue_link() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO audit_links (event_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
CREATE FUNCTION audit_close_link() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    place bigint;
    previous varchar;
    own varchar;
BEGIN
    SELECT h.position + 1, h.hash INTO place, previous FROM audit_head h FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_head (id, position, hash) VALUES (1, 0, repeat('0', 64)) ON CONFLICT (id) DO NOTHING;
        SELECT h.position + 1, h.hash INTO place, previous FROM audit_head h FOR UPDATE;
    END IF;
    SELECT encode(sha256(convert_to(place || ' ' || previous || ' ' || e.digest, 'UTF8')), 'hex') INTO own
    FROM audit_events e WHERE e.id = NEW.event_id;
    UPDATE audit_links SET position = place, prev_hash = previous, hash = own WHERE event_id = NEW.event_id;
    UPDATE audit_head SET position = place, hash = own;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER audit_events_queue AFTER INSERT ON audit_events DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit_queue_link();
CREATE CONSTRAINT TRIGGER audit_links_close AFTER INSERT ON audit_links DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION audit_close_link();
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0002_tables")]
    operations = [
        migrations.RunSQL(UNCOMPRESSED + FOLLOW_DOCUMENT, migrations.RunSQL.noop),
        migrations.RunSQL(COUNTS, migrations.RunSQL.noop),
        migrations.RunSQL(GUARD + CHAIN, migrations.RunSQL.noop),
    ]
