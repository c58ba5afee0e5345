"""Django's settings, derived from the environment (`environment.py`). A wrong variable stops the start."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from csp.constants import NONE, SELF

from collections_app.domain.formats import MEGABYTE
from ragd_site import embedded
from ragd_site.broker import describe_broker
from ragd_site.environment import REPOSITORY, Environment, SettingError, default_model_name, read_environment
from ragd_site.runtime.programs import EmbeddedError

try:
    environment = read_environment()
except SettingError as error:
    sys.exit(f"ragd does not start.\n{error}")

BASE_DIR = REPOSITORY
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
# "web" in the web server: there, connections are pooled; "restore" where there is no server yet
PROCESS = os.environ.get("RAGD_PROCESS", "command")

RAGD_VAR = environment.RAGD_VAR
RAGD_HOST = environment.RAGD_HOST
PORT = environment.PORT
RAGD_WEB_WORKERS = environment.RAGD_WEB_WORKERS
RAGD_WEB_THREADS = environment.RAGD_WEB_THREADS
RAGD_WORKER_PROCESSES = environment.RAGD_WORKER_PROCESSES
RAGD_EMBED_PATH = environment.RAGD_EMBED_PATH
RAGD_EMBED_MODEL = default_model_name(environment)
RAGD_EMBED_DIMS = environment.RAGD_EMBED_DIMS
RAGD_SPARSE_PATH = environment.RAGD_SPARSE_PATH
RAGD_EMBED_PROMPTS = environment.RAGD_EMBED_PROMPTS
RAGD_EMBED_QUERY_PROMPT = environment.RAGD_EMBED_QUERY_PROMPT
RAGD_EMBED_PASSAGE_PROMPT = environment.RAGD_EMBED_PASSAGE_PROMPT
RAGD_EMBED_BASE_URL = environment.EMBED_BASE_URL
RAGD_EMBED_API_KEY = environment.EMBED_API_KEY.get_secret_value() or environment.OPENAI_API_KEY.get_secret_value()
RAGD_EMBED_TIMEOUT_S = environment.RAGD_EMBED_TIMEOUT_S
RAGD_EMBED_BATCH_SIZE = environment.RAGD_EMBED_BATCH_SIZE
RAGD_EMBED_REQUESTS_PER_MINUTE = environment.RAGD_EMBED_REQUESTS_PER_MINUTE
RAGD_EMBED_TOKENS_PER_MINUTE = environment.RAGD_EMBED_TOKENS_PER_MINUTE
RAGD_RERANK_BASE_URL = environment.RAGD_RERANK_BASE_URL
RAGD_RERANK_MODEL = environment.RAGD_RERANK_MODEL
RAGD_RERANK_API_KEY = environment.RAGD_RERANK_API_KEY.get_secret_value()
RAGD_RERANK_TIMEOUT_S = environment.RAGD_RERANK_TIMEOUT_S
RAGD_CROSS_ENCODER_PATH = environment.RAGD_CROSS_ENCODER_PATH
RAGD_LLM_BASE_URL = environment.LLM_BASE_URL
RAGD_LLM_API_KEY = environment.OPENAI_API_KEY.get_secret_value()
RAGD_LLM_MODEL = environment.RAGD_LLM_MODEL
RAGD_LLM_TIMEOUT_S = environment.RAGD_LLM_TIMEOUT_S
RAGD_LLM_MAX_TOKENS = environment.RAGD_LLM_MAX_TOKENS
RAGD_JUDGE_BASE_URL = environment.RAGD_JUDGE_BASE_URL
RAGD_JUDGE_API_KEY = environment.RAGD_JUDGE_API_KEY.get_secret_value()
RAGD_JUDGE_MODEL = environment.RAGD_JUDGE_MODEL
RAGD_JUDGE_TIMEOUT_S = environment.RAGD_JUDGE_TIMEOUT_S
RAGD_JUDGE_MAX_TOKENS = environment.RAGD_JUDGE_MAX_TOKENS
RAGD_JUDGE_PATH = environment.RAGD_JUDGE_PATH
RAGD_MAX_DOCUMENT_MB = environment.RAGD_MAX_DOCUMENT_MB
RAGD_SAMPLE = environment.RAGD_SAMPLE
RAGD_IMPORT_MAX_MB = environment.RAGD_IMPORT_MAX_MB
RAGD_PARSE_TIMEOUT_S = environment.RAGD_PARSE_TIMEOUT_S
RAGD_PARSE_MEMORY_MB = environment.RAGD_PARSE_MEMORY_MB
RAGD_OCR = environment.RAGD_OCR
RAGD_OCR_MAX_PAGES = environment.RAGD_OCR_MAX_PAGES
RAGD_OCR_PAGE_TIMEOUT_S = environment.RAGD_OCR_PAGE_TIMEOUT_S
RAGD_PARSE_MAX_CHARS = environment.RAGD_PARSE_MAX_CHARS
RAGD_EXACT_THRESHOLD = environment.RAGD_EXACT_THRESHOLD
RAGD_REPLICA_MAX_LAG_S = environment.RAGD_REPLICA_MAX_LAG_S
RAGD_DEGRADE = environment.RAGD_DEGRADE
RAGD_QUEUE_MAX_S = environment.RAGD_QUEUE_MAX_S
RAGD_FETCH_CONTACT = environment.RAGD_FETCH_CONTACT
RAGD_FETCH_ALLOWED_NETWORKS = environment.RAGD_FETCH_ALLOWED_NETWORKS
RAGD_FETCH_TIMEOUT_S = environment.RAGD_FETCH_TIMEOUT_S
RAGD_FETCH_PAUSE_S = environment.RAGD_FETCH_PAUSE_S
RAGD_SOURCE_FOLDERS = environment.RAGD_SOURCE_FOLDERS
RAGD_SOURCE_MAX_ITEMS = environment.RAGD_SOURCE_MAX_ITEMS
RAGD_S3_ENDPOINT = environment.RAGD_S3_ENDPOINT
RAGD_S3_BUCKETS = environment.RAGD_S3_BUCKETS
AWS_ACCESS_KEY_ID = environment.AWS_ACCESS_KEY_ID
AWS_SECRET_ACCESS_KEY = environment.AWS_SECRET_ACCESS_KEY.get_secret_value()
AWS_SESSION_TOKEN = environment.AWS_SESSION_TOKEN.get_secret_value()
AWS_REGION = environment.AWS_REGION
RAGD_RECALL_WARNING = environment.RAGD_RECALL_WARNING
RAGD_EVALUATION_BANDS = environment.RAGD_EVALUATION_BANDS
RAGD_CAPTURE_CONTENT = environment.RAGD_CAPTURE_CONTENT
RAGD_CAPTURE_VECTORS = environment.RAGD_CAPTURE_VECTORS
RAGD_OTLP_CONTENT = environment.RAGD_OTLP_CONTENT
RAGD_COLLECTOR = "ragd_site.observability.collector.configured"  # reads where spans are sent
OTEL_EXPORTER_OTLP_ENDPOINT = environment.OTEL_EXPORTER_OTLP_ENDPOINT
OTEL_EXPORTER_OTLP_HEADERS = environment.OTEL_EXPORTER_OTLP_HEADERS.get_secret_value()
RAGD_METRICS_KEY = environment.RAGD_METRICS_KEY.get_secret_value()
# which variables are set: those of retention go before what is set on the page
RAGD_STATED = frozenset(environment.model_fields_set)
RAGD_GENERATION_KEEP_DAYS = environment.RAGD_GENERATION_KEEP_DAYS
RAGD_REVISIONS_KEPT = environment.RAGD_REVISIONS_KEPT
RAGD_DELETED_KEPT_DAYS = environment.RAGD_DELETED_KEPT_DAYS
RAGD_TRASH_DAYS = environment.RAGD_TRASH_DAYS
RAGD_EVALUATION_PROCESSES = environment.RAGD_EVALUATION_PROCESSES
RAGD_EVALUATION_RETENTION_DAYS = environment.RAGD_EVALUATION_RETENTION_DAYS
RAGD_RUN_RETENTION_DAYS = environment.RAGD_RUN_RETENTION_DAYS
RAGD_SPAN_RETENTION_DAYS = environment.RAGD_SPAN_RETENTION_DAYS
RAGD_SPAN_MAX_MB = environment.RAGD_SPAN_MAX_MB
RAGD_BACKUP_TO = environment.RAGD_BACKUP_TO
RAGD_BACKUP_KEY = environment.RAGD_BACKUP_KEY.get_secret_value()
RAGD_BACKUP_KEEP = environment.RAGD_BACKUP_KEEP
RAGD_JOB_LEASE_S = environment.RAGD_JOB_LEASE_S
RAGD_JOB_MAX_ATTEMPTS = environment.RAGD_JOB_MAX_ATTEMPTS
RAGD_QUEUE_MAX_JOBS = environment.RAGD_QUEUE_MAX_JOBS
RAGD_QUEUE_MAX_MB = environment.RAGD_QUEUE_MAX_MB
RAGD_KEY_MAX_DAYS = environment.RAGD_KEY_MAX_DAYS
RAGD_REQUESTS_PER_MINUTE = environment.RAGD_REQUESTS_PER_MINUTE
RAGD_TOKENS_PER_DAY = environment.RAGD_TOKENS_PER_DAY
RAGD_WRONG_KEYS_PER_MINUTE = environment.RAGD_WRONG_KEYS_PER_MINUTE
RAGD_ADMIN_USER = environment.RAGD_ADMIN_USER
RAGD_ADMIN_PASSWORD = environment.RAGD_ADMIN_PASSWORD.get_secret_value()
RAGD_OIDC_ISSUER = environment.RAGD_OIDC_ISSUER
RAGD_OIDC_NAME = environment.RAGD_OIDC_NAME
RAGD_OIDC_GROUPS_CLAIM = environment.RAGD_OIDC_GROUPS_CLAIM
RAGD_OIDC_ADMIN_GROUP = environment.RAGD_OIDC_ADMIN_GROUP
RAGD_OIDC_SIGNUP = environment.RAGD_OIDC_SIGNUP
RAGD_OIDC_LINK_EMAIL = environment.RAGD_OIDC_LINK_EMAIL
RAGD_TRUSTED_PROXIES = environment.RAGD_TRUSTED_PROXIES
RAGD_PROXY_USER_HEADER = environment.RAGD_PROXY_USER_HEADER
RAGD_PROXY_GROUPS_HEADER = environment.RAGD_PROXY_GROUPS_HEADER
RAGD_PROXY_SIGNUP = environment.RAGD_PROXY_SIGNUP
RAGD_PASSWORD_LOGIN = environment.RAGD_PASSWORD_LOGIN
RAGD_REQUIRE_MFA = environment.RAGD_REQUIRE_MFA


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
    """DATABASE_URL, or else the URL of the embedded PostgreSQL, which is running afterwards."""
    if url or PROCESS == "restore":
        return url
    try:
        return embedded.ensure_running(var).url
    except EmbeddedError as error:
        sys.exit(f"ragd does not start.\n{error}")


def describe_database(url: str, *, pooled: bool) -> dict[str, Any]:
    """One entry of DATABASES; what stands after `?` in the URL goes to libpq (sslmode, ...)."""
    parts = urlsplit(url)
    options: dict[str, Any] = {
        "application_name": f"ragd {PROCESS}",
        "connect_timeout": 10,
        **dict(parse_qsl(parts.query)),
    }
    if pooled:
        options["pool"] = {"min_size": 1, "max_size": RAGD_WEB_THREADS + 2, "timeout": 10}
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


def describe_provider(environment: Environment) -> dict[str, Any]:
    """SOCIALACCOUNT_PROVIDERS: the provider of single sign-on, where the environment names one."""
    if not environment.RAGD_OIDC_ISSUER:
        return {}
    application = {
        "provider_id": environment.RAGD_OIDC_ISSUER,
        "name": environment.RAGD_OIDC_NAME,
        "client_id": environment.RAGD_OIDC_CLIENT_ID,
        "secret": environment.RAGD_OIDC_CLIENT_SECRET.get_secret_value(),
        "settings": {
            "server_url": environment.RAGD_OIDC_ISSUER.rstrip("/"),
            "scope": environment.RAGD_OIDC_SCOPES.split(),
            "oauth_pkce_enabled": True,
        },
    }
    return {"oidc": {"APPS": [application]}}


SECRET_KEY = environment.RAGD_SECRET_KEY.get_secret_value() or keep_secret_key(RAGD_VAR)
RAGD_KEEPS_SECRET_KEY = not environment.RAGD_SECRET_KEY.get_secret_value()
SECRET_KEY_FALLBACKS = environment.RAGD_SECRET_KEY_FALLBACKS + read_earlier_keys(RAGD_VAR)
DEBUG = environment.RAGD_DEBUG
ALLOWED_HOSTS = [*environment.RAGD_ALLOWED_HOSTS, *LOOPBACK_HOSTS]  # health checks come by loopback
CSRF_TRUSTED_ORIGINS = environment.RAGD_CSRF_TRUSTED_ORIGINS

DATABASE_URL = choose_database_url(environment.DATABASE_URL, RAGD_VAR)
DATABASES = {"default": describe_database(DATABASE_URL, pooled=PROCESS == "web")}
if environment.DATABASE_REPLICA_URL:
    DATABASES["replica"] = describe_replica(environment.DATABASE_REPLICA_URL)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "ragd_site",
    "evaluation_app",
    "retrieval_app",
    "collections_app",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "ninja",
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
    "collections_app.http.middleware.ApiErrorMiddleware",
    "collections_app.http.middleware.NormalFormMiddleware",
    "ragd_site.access.back_pressure.BackPressureMiddleware",
    "ragd_site.sign_on.proxies.TrustedProxyMiddleware",
    "ragd_site.body_limits.BodyLimitMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "collections_app.http.middleware.CacheMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "collections_app.http.middleware.LanguageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "collections_app.http.audit_middleware.AuditMiddleware",
    "ragd_site.sign_on.proxies.ProxyUserMiddleware",
    "ragd_site.access.middleware.AccessMiddleware",
    "ragd_site.access.entrance.PageLoginMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "ragd_site.sign_on.sessions.SessionActivityMiddleware",
    "ragd_site.sign_on.second_factor.SecondFactorMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
    "collections_app.http.middleware.NodeAwayMiddleware",
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
                "ragd_site.access.reader.rights",
            ],
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
    "ragd_site.sign_on.proxies.ProxyUserBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "ragd_site.sign_on.passwords.PasswordLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 15 * 60  # of log-in links, which the shell makes; those of mails have times of their own
EMAIL_HOST, EMAIL_PORT = environment.RAGD_MAIL_HOST, environment.RAGD_MAIL_PORT
EMAIL_USE_TLS, EMAIL_USE_SSL = (mode == environment.RAGD_MAIL_SECURITY for mode in ("starttls", "tls"))
EMAIL_HOST_USER = environment.RAGD_MAIL_USER
EMAIL_HOST_PASSWORD = environment.RAGD_MAIL_PASSWORD.get_secret_value()
EMAIL_TIMEOUT = 10  # seconds
DEFAULT_FROM_EMAIL = environment.RAGD_MAIL_FROM
RAGD_PUBLIC_URL = environment.RAGD_PUBLIC_URL
LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "ragd_site.access.entrance.refuse_forgery"
LOGIN_REDIRECT_URL = "evaluation:home"
LOGOUT_REDIRECT_URL = "login"
AXES_HANDLER = "ragd_site.sign_on.attempts.AttemptsHandler"
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
SOCIALACCOUNT_PROVIDERS = describe_provider(environment)
MFA_ADAPTER = "ragd_site.sign_on.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = RAGD_PASSWORD_LOGIN  # both are log-ins at ragd itself
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
SESSION_COOKIE_AGE = int(environment.RAGD_SESSION_HOURS * 3600)
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

# a body in JSON escapes some characters, and segments add field names
DATA_UPLOAD_MAX_MEMORY_SIZE = RAGD_MAX_DOCUMENT_MB * MEGABYTE * 2
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
CELERY_WORKER_CONCURRENCY = RAGD_WORKER_PROCESSES
CELERY_WORKER_MAX_TASKS_PER_CHILD = 500
# pgmq acknowledges only between two drains: with 1, short tasks run at one a second
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
