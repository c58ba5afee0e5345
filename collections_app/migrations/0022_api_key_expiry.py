"""An expiry that Python cannot read, or that lies beyond ten years, becomes ten years; from now on none is stored."""

from __future__ import annotations

from django.db import migrations

# differences of two times are counted in days of 24 hours, whatever the time zone of the session
REPAIR = """
UPDATE api_keys SET expires_at = created_at + interval '87648 hours' WHERE expires_at - created_at > interval '3653 days';
UPDATE api_keys SET expires_at = created_at WHERE expires_at < timestamptz '1970-01-01 00:00:00+00';
"""
ADD = """
ALTER TABLE api_keys ADD CONSTRAINT api_keys_expires_at CHECK (
    expires_at >= timestamptz '1970-01-01 00:00:00+00' AND expires_at - created_at <= interval '3653 days')
"""
DROP = "ALTER TABLE api_keys DROP CONSTRAINT api_keys_expires_at"


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0021_operation_leases")]
    operations = [migrations.RunSQL(REPAIR, migrations.RunSQL.noop), migrations.RunSQL(ADD, DROP)]
