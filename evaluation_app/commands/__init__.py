"""The verbs of `manage.py ragd` that evaluate, check and care for a server."""
