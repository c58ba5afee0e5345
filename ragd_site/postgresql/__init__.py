"""Django's PostgreSQL backend, bound by row-level security, and the policies of every table."""
