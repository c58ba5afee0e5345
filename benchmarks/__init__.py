import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")  # texts of the product ask for its language
