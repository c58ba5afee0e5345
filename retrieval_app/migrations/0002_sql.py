"""Collections and query runs are deleted by SQL too; what belongs to them goes with them."""

from django.db import migrations

FOLLOW = """
ALTER TABLE retrieval_app_savedplan ADD CONSTRAINT savedplan_collection_fk
    FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE;
ALTER TABLE retrieval_app_calibration ADD CONSTRAINT calibration_collection_fk
    FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE;
ALTER TABLE retrieval_app_retrievedchunk
    ADD CONSTRAINT retrievedchunk_run_fk
        FOREIGN KEY (run_id) REFERENCES retrieval_app_queryrun (id) ON DELETE CASCADE,
    ADD CONSTRAINT retrievedchunk_collection_fk
        FOREIGN KEY (collection_id) REFERENCES collections (id) ON DELETE CASCADE;
"""


class Migration(migrations.Migration):
    dependencies = [("retrieval_app", "0001_models")]
    operations = [migrations.RunSQL(FOLLOW, migrations.RunSQL.noop)]
