"""`manage.py ragd audit` and `manage.py ragd erase`."""
