"""The web application: `gunicorn -c python:ragd_site.web ragd_site.wsgi`."""

from __future__ import annotations

import gc
import os
from importlib import import_module

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ragd_site.settings")
os.environ.setdefault("RAGD_PROCESS", "web")

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from ragd_site import checks
from ragd_site.observability import tracing
from ragd_site.runtime.processes import wait_until_prepared

gc.disable()  # a fifth of the time that the modules take to load: nothing of them is garbage
tracing.set_up("web")  # before the handler loads the middleware, to which the request spans are added
django.setup()
import_module(settings.ROOT_URLCONF)  # before the fork and before the first request, not at it
wait_until_prepared(settings.RAGD_VAR)
application = get_wsgi_application()  # whose middleware reads the static files, which the preparation collects
checks.stop_unless_supported()
checks.stop_unless_bound()
gc.enable()
gc.freeze()  # what is loaded now stays: no collection of garbage looks through it again, nor copies its pages
gc.set_threshold(20_000, 20, 20)  # a search makes some thousands of objects, and hardly any in a circle
