from django.db import migrations

CREATE_CACHE = """
CREATE TABLE sign_on_cache (
    cache_key varchar(255) PRIMARY KEY,
    value text NOT NULL,
    expires timestamp with time zone NOT NULL
);
CREATE INDEX sign_on_cache_expires ON sign_on_cache (expires);
"""


class Migration(migrations.Migration):
    """The table of Django's cache, as `createcachetable` makes it."""

    initial = True
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
        ("usersessions", "0001_initial"),
    ]
    # each change of a table that refers to users reads all others that do: fewer before ours are there
    run_before = [("collections_app", "0002_tables")]
    operations = [
        migrations.RunSQL(CREATE_CACHE, "DROP TABLE sign_on_cache"),
    ]
