"""The verbs of `manage.py ragd` that work on collections, and what all verbs are made of."""
