"""Columns of query runs that came later have defaults in the database too, where an upgrade made them without: the code
of before, which runs on while its processes are replaced, does not know them."""

from django.db import migrations

SET = """
ALTER TABLE retrieval_app_queryrun
    ALTER COLUMN environment SET DEFAULT 'production',
    ALTER COLUMN elsewhere SET DEFAULT '{}',
    ALTER COLUMN conversation_id SET DEFAULT ''
"""


class Migration(migrations.Migration):
    dependencies = [("retrieval_app", "0015_degraded_index")]

    operations = [migrations.RunSQL(SET, migrations.RunSQL.noop)]
