"""Django's settings, derived from the environment (`environment.py`). A wrong variable stops the start."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from csp.constants import NONE, SELF

from collections_app.domain.formats import MEGABYTE
from ragd_site import embedded
from ragd_site.broker import describe_broker
from ragd_site.environment import REPOSITORY, SettingError, default_model_name, read_environment
from ragd_site.runtime.programs import EmbeddedError

try:
    environment = read_environment()
except SettingError as error:
    sys.exit(f"ragd does not start.\n{error}")

BASE_DIR = REPOSITORY
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
# "web" in the web server: there, connections are pooled; "restore" where there is no server yet; "prepare" where only
# the models are loaded, for the schema; "worker"
PROCESS = os.environ.get("RAGD_PROCESS", "command")

# every variable of the environment is the setting of its name; the following ones are derived
globals().update(environment.as_settings())
RAGD_VAR = environment.RAGD_VAR
RAGD_EMBED_MODEL = default_model_name(environment)
RAGD_EMBED_BASE_URL = environment.EMBED_BASE_URL
RAGD_EMBED_API_KEY = environment.EMBED_API_KEY.get_secret_value() or environment.OPENAI_API_KEY.get_secret_value()
RAGD_LLM_BASE_URL = environment.LLM_BASE_URL
RAGD_LLM_API_KEY = environment.OPENAI_API_KEY.get_secret_value()
RAGD_COLLECTOR = "ragd_site.observability.tracing.configured"  # reads where spans are sent
# which variables are set: they go before what is set on pages
RAGD_STATED = frozenset(environment.model_fields_set)
RAGD_AT_START = environment.as_settings()  # what holds where no page has set another value
RAGD_DERIVE = "ragd_site.settings.derive"
RAGD_FOLLOW = "ragd_site.observability.tracing.follow_settings"  # after a page changed a setting
RAGD_FOLLOWS_PAGES = PROCESS == "web"  # whether each request looks at what pages set


def keep_secret_key(var: Path) -> str:
    """The key in RAGD_VAR/secret_key, generated at the first start (mode 0600)."""
    path = var / "secret_key"
    if PROCESS == "restore":
        return secrets.token_urlsafe(48)
    if not path.exists():
        embedded.make_private_folder(var)
        embedded.write_private(path, secrets.token_urlsafe(48), keep=True)
    return path.read_text().strip()


def read_earlier_keys(var: Path) -> list[str]:
    """The keys before the one in RAGD_VAR/secret_key, while a rotation is not finished."""
    path = var / "secret_key_earlier"
    return path.read_text().split() if path.exists() and not environment.RAGD_SECRET_KEY.get_secret_value() else []


def choose_database_url(url: str, var: Path) -> str:
    """DATABASE_URL, or else the URL of the embedded PostgreSQL, which the first connection starts."""
    if url or PROCESS == "restore":
        return url
    try:
        cluster = embedded.read_cluster(var)
    except EmbeddedError as error:
        sys.exit(f"ragd does not start.\n{error}")
    return cluster.url if cluster else f"postgresql://{embedded.HOST}/{embedded.DATABASE}"


def describe_database(url: str, *, pooled: bool) -> dict[str, Any]:
    """One entry of DATABASES; what stands after `?` in the URL goes to libpq (sslmode, ...)."""
    parts = urlsplit(url)
    options: dict[str, Any] = {
        "application_name": f"ragd {PROCESS}",
        "connect_timeout": 10,
        **dict(parse_qsl(parts.query)),
    }
    if pooled:
        options["pool"] = {"min_size": 1, "max_size": environment.RAGD_WEB_THREADS + 2, "timeout": 10}
    return {
        "ENGINE": "ragd_site.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "ragd",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0 if pooled else 600,
        "CONN_HEALTH_CHECKS": not pooled,
        "OPTIONS": options,
        # the same collation everywhere, whatever locale the host's template database has
        "TEST": {"TEMPLATE": "template0"},
    }


def describe_replica(url: str) -> dict[str, Any]:
    """The read-only copy: what is sent there cannot write, even where the copy could."""
    described = describe_database(url, pooled=PROCESS == "web")
    described["OPTIONS"]["options"] = "-c default_transaction_read_only=on"
    return described | {"TEST": {"MIRROR": "default"}}


def derive(values: Any) -> dict[str, Any]:
    """Settings of Django and allauth that follow from ragd's own, of the process or of a page. values: with the names
    of the environment as attributes, secrets as text."""
    provider: dict[str, Any] = {}
    if values.RAGD_OIDC_ISSUER:
        application = {
            "provider_id": values.RAGD_OIDC_ISSUER,
            "name": values.RAGD_OIDC_NAME,
            "client_id": values.RAGD_OIDC_CLIENT_ID,
            "secret": values.RAGD_OIDC_CLIENT_SECRET,
            "settings": {
                "server_url": values.RAGD_OIDC_ISSUER.rstrip("/"),
                "scope": values.RAGD_OIDC_SCOPES.split(),
                "oauth_pkce_enabled": True,
            },
        }
        provider = {"oidc": {"APPS": [application]}}
    return {
        "SOCIALACCOUNT_PROVIDERS": provider,
        "MFA_PASSKEY_LOGIN_ENABLED": values.RAGD_PASSWORD_LOGIN,  # both are log-ins at ragd itself
        "EMAIL_HOST": values.RAGD_MAIL_HOST,
        "EMAIL_PORT": values.RAGD_MAIL_PORT,
        "EMAIL_USE_TLS": values.RAGD_MAIL_SECURITY == "starttls",
        "EMAIL_USE_SSL": values.RAGD_MAIL_SECURITY == "tls",
        "EMAIL_HOST_USER": values.RAGD_MAIL_USER,
        "EMAIL_HOST_PASSWORD": values.RAGD_MAIL_PASSWORD,
        "DEFAULT_FROM_EMAIL": values.RAGD_MAIL_FROM,
        "SESSION_COOKIE_AGE": int(values.RAGD_SESSION_HOURS * 3600),
        # a body in JSON escapes some characters, and segments add field names
        "DATA_UPLOAD_MAX_MEMORY_SIZE": values.RAGD_MAX_DOCUMENT_MB * MEGABYTE * 2,
    }


globals().update(derive(SimpleNamespace(**RAGD_AT_START)))
SECRET_KEY = environment.RAGD_SECRET_KEY.get_secret_value() or keep_secret_key(RAGD_VAR)
RAGD_KEEPS_SECRET_KEY = not environment.RAGD_SECRET_KEY.get_secret_value()
SECRET_KEY_FALLBACKS = environment.RAGD_SECRET_KEY_FALLBACKS + read_earlier_keys(RAGD_VAR)
DEBUG = environment.RAGD_DEBUG
ALLOWED_HOSTS = [*environment.RAGD_ALLOWED_HOSTS, *LOOPBACK_HOSTS]  # health checks come by loopback
CSRF_TRUSTED_ORIGINS = environment.RAGD_CSRF_TRUSTED_ORIGINS

DATABASE_URL = choose_database_url(environment.DATABASE_URL, RAGD_VAR)
DATABASES = {"default": describe_database(DATABASE_URL, pooled=PROCESS == "web")}
if not environment.DATABASE_URL and PROCESS != "restore":
    DATABASES["default"]["EMBEDDED"] = RAGD_VAR
if environment.DATABASE_REPLICA_URL:
    DATABASES["replica"] = describe_replica(environment.DATABASE_REPLICA_URL)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "ragd_site",
    "evaluation_app",
    "retrieval_app",
    "collections_app",
    # it looks for the pages of the admin where there may be any
    "django.contrib.admin" if PROCESS in ("web", "command") else "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "axes",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.mfa",
    "allauth.usersessions",
    "ragd_site.sign_on",
]
MIDDLEWARE = [
    "collections_app.http.middleware.RequestMiddleware",
    "ragd_site.access.middleware.LoadMiddleware",
    "ragd_site.sign_on.adapters.OriginMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "ragd_site.sign_on.adapters.ProxyUserMiddleware",
    "ragd_site.access.middleware.AccessMiddleware",
    "ragd_site.access.middleware.PageLoginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]
# what a request of the API passes behind the first of them, in the same order
API_MIDDLEWARE = [
    "ragd_site.access.middleware.LoadMiddleware",
    "ragd_site.sign_on.adapters.OriginMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.middleware.common.CommonMiddleware",
    "ragd_site.access.middleware.AccessMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "ragd_site.urls"
WSGI_APPLICATION = "ragd_site.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "ragd_site.access.middleware.rights",
            ]
        },
    }
]

STATIC_URL = "/static/"
STATIC_ROOT = RAGD_VAR / "static"
RAGD_METRICS_FOLDER = RAGD_VAR / "metrics"  # what processes count; see docs/metrics.md
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},  # uploads live in PostgreSQL
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "ragd_site.sign_on.adapters.ProxyUserBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "ragd_site.sign_on.passwords.PasswordLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 15 * 60  # of log-in links, which the shell makes; those of mails have times of their own
EMAIL_TIMEOUT = 10  # seconds
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "ragd_site.access.middleware.refuse_forgery"
LOGIN_REDIRECT_URL = "operations:home"
LOGOUT_REDIRECT_URL = "login"
AXES_HANDLER = "ragd_site.sign_on.sessions.AttemptsHandler"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]  # the handler counts addresses too
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "lockout.html"
AXES_VERBOSE = False

ACCOUNT_ADAPTER = "ragd_site.sign_on.adapters.AccountAdapter"
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False
ACCOUNT_RATE_LIMITS = {"reset_password": "20/h/ip,3/h/key"}  # key: the address that is typed
SOCIALACCOUNT_ADAPTER = "ragd_site.sign_on.adapters.SignOnAdapter"
MFA_ADAPTER = "ragd_site.sign_on.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_TOTP_ISSUER = "ragd"
# what allauth counts, such as wrong codes, holds for all processes
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "sign_on_cache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

# trusted origins tell of an https proxy in front; without one, log-in over plain http on loopback must work
SERVED_BY_HTTPS = any(origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SERVED_BY_HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SERVED_BY_HTTPS else None
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if SERVED_BY_HTTPS else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

DATA_UPLOAD_MAX_NUMBER_FILES = 1000
DATA_UPLOAD_MAX_NUMBER_FIELDS = 3000  # every file may come with an id of its own
FILE_UPLOAD_MAX_MEMORY_SIZE = 64 * 1024  # of each of up to a thousand files in one request

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
LOCALE_PATHS = [BASE_DIR / "ragd_site" / "locale"]
FORMAT_MODULE_PATH = "ragd_site.formats"
LANGUAGE_COOKIE_AGE = 365 * 86_400
LANGUAGE_COOKIE_SAMESITE = "Lax"
TIME_ZONE = "UTC"
USE_TZ = True

CELERY_BROKER_URL, CELERY_BROKER_TRANSPORT_OPTIONS = describe_broker(environment.CELERY_BROKER_URL, DATABASE_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_DEFAULT_QUEUE = "ragd"
# the worker takes from them in turn: what came with many others, and what lost its worker, is sent to its own
CELERY_TASK_QUEUES = {name: {"exchange": name, "routing_key": name} for name in ("ragd", "ragd_bulk", "ragd_first")}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_CONCURRENCY = environment.RAGD_WORKER_PROCESSES
CELERY_WORKER_MAX_TASKS_PER_CHILD = 500
CELERY_DB_REUSE_MAX = 500  # else a connection is made for each task; `worker.follow_pages` gives up those that are gone
# ended tasks are acknowledged ten times a second: with 1, a process waits for that between two short ones
CELERY_WORKER_PREFETCH_MULTIPLIER = 4
# pgmq's queue names are too short for it; health comes from the heartbeat row
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": environment.RAGD_LOG_LEVEL},
    "loggers": {
        "django.server": {"handlers": ["stderr"], "propagate": False},
        "axes": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        # ragd logs what is lost itself; its lines would hold addresses with their query
        "opentelemetry.exporter.otlp.proto.http.trace_exporter": {"level": "CRITICAL"},
        "pgmq": {"level": "WARNING"},
        "psycopg.pool": {"level": "WARNING"},
    },
}
