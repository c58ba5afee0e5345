"""The audit log in a table of its own, chained by the database when a transaction commits, and the list of erasures."""

import uuid

import django.utils.timezone
from django.db import migrations, models

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

FORGET = """
DROP TABLE IF EXISTS audit_links, audit_events CASCADE;
DROP FUNCTION audit_queue_link(), audit_close_link(), audit_refuse_change();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('collections_app', '0037_access'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('actor_kind', models.CharField(choices=[('user', 'User'), ('key', 'API key'), ('system', 'System'), ('anonymous', 'Not logged in')], max_length=10)),
                ('actor_id', models.TextField(blank=True, default='')),
                ('actor_name', models.TextField(blank=True, default='')),
                ('channel', models.CharField(max_length=10)),
                ('address', models.TextField(blank=True, default='')),
                ('request_id', models.TextField(blank=True, default='')),
                ('action', models.CharField(max_length=64)),
                ('subject_kind', models.CharField(blank=True, default='', max_length=64)),
                ('subject_id', models.TextField(blank=True, default='')),
                ('subject_name', models.TextField(blank=True, default='')),
                ('collection_id', models.BigIntegerField(blank=True, db_column='of_collection_id', null=True)),
                ('collection_name', models.TextField(blank=True, db_collation='C', default='')),
                ('message', models.TextField(blank=True, default='')),
                ('before', models.JSONField(blank=True, null=True)),
                ('after', models.JSONField(blank=True, null=True)),
                ('outcome', models.CharField(choices=[('succeeded', 'Succeeded'), ('refused', 'Refused')], default='succeeded', max_length=10)),
                ('who_salt', models.BinaryField(null=True)),
                ('who_digest', models.CharField(max_length=64)),
                ('what_salt', models.BinaryField(null=True)),
                ('what_digest', models.CharField(max_length=64)),
                ('digest', models.CharField(max_length=64)),
            ],
            options={
                'db_table': 'audit_events',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='AuditHead',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('position', models.BigIntegerField()),
                ('hash', models.CharField(max_length=64)),
            ],
            options={
                'db_table': 'audit_head',
            },
        ),
        migrations.CreateModel(
            name='Erasure',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('document', 'Document'), ('collection', 'Collection'), ('person', 'Person')], max_length=10)),
                ('subject', models.JSONField(default=dict)),
                ('name_hash', models.CharField(blank=True, default='', max_length=64)),
                ('counts', models.JSONField(default=dict)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'db_table': 'erasures',
                'ordering': ['at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='AuditLink',
            fields=[
                ('event', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='link', serialize=False, to='collections_app.auditevent')),
                ('position', models.BigIntegerField(null=True, unique=True)),
                ('prev_hash', models.CharField(db_default='', default='', max_length=64)),
                ('hash', models.CharField(db_default='', default='', max_length=64)),
            ],
            options={
                'db_table': 'audit_links',
            },
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['actor_name', '-id'], name='audit_events_actor'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['collection_name', '-id'], name='audit_events_collection'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['action', '-id'], name='audit_events_action'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['subject_kind', 'subject_id', '-id'], name='audit_events_subject'),
        ),
        migrations.AddIndex(
            model_name='auditevent',
            index=models.Index(fields=['at'], name='audit_events_at'),
        ),
        migrations.RunSQL(GUARD + CHAIN, FORGET),
    ]
