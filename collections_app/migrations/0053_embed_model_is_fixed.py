"""The trigger of ragd/schema.sql that keeps a collection's embedding model while its index version stays."""

from django.db import migrations

TRIGGER = """
CREATE OR REPLACE FUNCTION ragd_keep_dims() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.embed_model <> NEW.embed_model THEN
        RAISE EXCEPTION 'collection % holds vectors of the model %, not of %', OLD.name, OLD.embed_model, NEW.embed_model
            USING ERRCODE = 'check_violation', HINT = 'Build a generation with the other model and let it serve.';
    END IF;
    RAISE EXCEPTION 'collection % holds vectors of % dimensions, not %', OLD.name, OLD.embed_dims, NEW.embed_dims
        USING ERRCODE = 'check_violation', HINT = 'Build a generation with other dimensions and let it serve.';
END $$;
CREATE OR REPLACE TRIGGER collections_dims BEFORE UPDATE OF embed_dims, embed_model ON collections FOR EACH ROW
    WHEN ((OLD.embed_dims, OLD.embed_model) IS DISTINCT FROM (NEW.embed_dims, NEW.embed_model)
          AND OLD.generation = NEW.generation)
    EXECUTE FUNCTION ragd_keep_dims();
"""


class Migration(migrations.Migration):
    dependencies = [("collections_app", "0052_role_labels")]
    operations = [migrations.RunSQL(TRIGGER, migrations.RunSQL.noop)]
