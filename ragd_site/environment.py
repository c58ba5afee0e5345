"""Every environment variable that ragd reads: name, type, default, meaning.

`python -m ragd_site.environment` writes them into the table of docs/configuration.md.
"""

from __future__ import annotations

import os
import types
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from django.utils.module_loading import import_string
from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from evaluation_app.measures.catalogue import read_bands
from ragd.errors import InvalidInput
from ragd_site.runtime.setting_types import (
    HTTP_SCHEMES,
    CommaList,
    Seconds,
    check_accent,
    check_database_parts,
    check_networks,
    check_scheme,
    read_secret_files,
)
from ragd_site.sign_on.environment import MailSettings, SignOnSettings

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "configuration.md"
TABLE_START, TABLE_END = "<!-- variables -->\n", "\n<!-- /variables -->"
DATABASE_SCHEMES = ("postgresql", "postgres")
BROKER_SCHEMES = ("pgmq", "redis", "rediss", "amqp", "amqps")
# they hold passwords or keys and are no SecretStr
IN_PLAIN = [
    "DATABASE_URL",
    "DATABASE_REPLICA_URL",
    "CELERY_BROKER_URL",
    "RAGD_SECRET_KEY_FALLBACKS",
    "AWS_ACCESS_KEY_ID",
]


# set on pages alone: no variable names them
ON_PAGES_ALONE = frozenset(
    """
    RAGD_NAME RAGD_ACCENT RAGD_LOGO
    RAGD_REPLICA_MAX_LAG_S RAGD_DEGRADE RAGD_QUEUE_MAX_S RAGD_QUEUE_MAX_JOBS RAGD_QUEUE_MAX_MB RAGD_KEY_MAX_DAYS
    RAGD_REQUESTS_PER_MINUTE RAGD_TOKENS_PER_DAY RAGD_WRONG_KEYS_PER_MINUTE RAGD_EMBED_TIMEOUT_S
    RAGD_EMBED_REQUESTS_PER_MINUTE RAGD_EMBED_TOKENS_PER_MINUTE RAGD_RERANK_TIMEOUT_S RAGD_LLM_TIMEOUT_S
    RAGD_LLM_MAX_TOKENS RAGD_JUDGE_TIMEOUT_S RAGD_JUDGE_MAX_TOKENS RAGD_PARSE_TIMEOUT_S RAGD_PARSE_MEMORY_MB
    RAGD_PARSE_MAX_CHARS RAGD_OCR_MAX_PAGES RAGD_OWN_FILES_MB RAGD_FETCH_CONTACT RAGD_FETCH_TIMEOUT_S
    RAGD_SOURCE_MAX_ITEMS RAGD_EXACT_THRESHOLD RAGD_RECALL_WARNING RAGD_EVALUATION_BANDS RAGD_CAPTURE_VECTORS
    RAGD_INDEX_VERSION_KEEP_DAYS RAGD_REVISIONS_KEPT RAGD_DELETED_KEPT_DAYS RAGD_TRASH_DAYS
    RAGD_EVALUATION_RETENTION_DAYS RAGD_RUN_RETENTION_DAYS RAGD_SPAN_RETENTION_DAYS RAGD_BACKUP_KEEP
    RAGD_OIDC_NAME RAGD_OIDC_SCOPES RAGD_OIDC_GROUPS_CLAIM RAGD_OIDC_ADMIN_GROUP RAGD_OIDC_SIGNUP RAGD_OIDC_LINK_EMAIL
    RAGD_SESSION_HOURS RAGD_BACKUP_EVERY RAGD_BACKUP_HOUR
    """.split()  # noqa: SIM905  (a list of 60 quoted names would be a page)
)


class SettingError(Exception):
    """A variable holds a value that is not accepted; the message names variable, value and accepted values."""


def check_preset(name: str) -> str:
    """The name unchanged, or ValueError unless prompts are known by it. They are loaded where one is stated."""
    if name and name not in (presets := import_string("ragd.models.prompts.PROMPT_PRESETS")):
        raise ValueError("one of " + ", ".join(presets))
    return name


Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]


class ServerSettings(BaseSettings):
    """All but those of logging in."""

    model_config = SettingsConfigDict(case_sensitive=True, env_ignore_empty=True, extra="ignore", frozen=True)

    RAGD_VAR: Path = Field(
        REPOSITORY / "var", description="Folder for everything that ragd keeps: database, secrets, logs"
    )
    PORT: Port = Field(8000, description="TCP port of the web server")
    RAGD_HOST: str = Field("127.0.0.1", description="Address that the web server listens on")
    RAGD_RUN_AS_ROOT: bool = Field(
        False, description="Whether `make run` by root stays root; else it goes on as the account `ragd`"
    )
    DATABASE_URL: str = Field(
        "", description="PostgreSQL 17 or newer with pgvector 0.8.4 or newer; unset: the embedded PostgreSQL"
    )
    DATABASE_REPLICA_URL: str = Field(
        "", description="A read-only copy of that database (streaming replica), which then takes retrieval"
    )
    RAGD_REPLICA_MAX_LAG_S: Seconds = Field(
        10.0, description="Seconds that the read-only copy of the database may be behind before the primary takes over"
    )
    RAGD_DEGRADE: bool = Field(
        True, description="Whether queries go on without an embedder, reranker or model that does not answer"
    )
    CELERY_BROKER_URL: str = Field(
        "", description="`redis://` or `amqp://` broker; unset: a queue in the same PostgreSQL (pgmq)"
    )

    RAGD_NAME: Annotated[str, Field(min_length=1, max_length=40)] = Field(
        "ragd", description="What pages call this server, at the top and in the titles"
    )
    RAGD_ACCENT: Annotated[str, AfterValidator(check_accent)] = Field(
        "", description="Accent colour of pages and of the widget, `#rrggbb`; its shades stay readable"
    )
    RAGD_LOGO: str = Field("", description="Logo of the server: a square PNG of 192 to 1024 pixels, at most 100 kB")
    RAGD_SAMPLE: bool = Field(True, description="Whether a start loads the sample collection and evaluates it once")
    RAGD_SECRET_KEY: SecretStr = Field(
        SecretStr(""),
        description="Signs sessions, encrypts keys of models; unset: generated into `RAGD_VAR/secret_key`",
    )
    RAGD_SECRET_KEY_FALLBACKS: CommaList = Field(
        [], description="Earlier secret keys, comma-separated: what they signed or encrypted is still read"
    )
    RAGD_DEBUG: bool = Field(False, description="Django's debug pages; never on a public server")
    RAGD_ALLOWED_HOSTS: CommaList = Field(
        [], description="Host names that the server answers to beside loopback, comma-separated"
    )
    RAGD_CSRF_TRUSTED_ORIGINS: CommaList = Field(
        [],
        description="Origins of forms behind a proxy (`https://rag.example.org`), comma-separated; https: safe cookies",
    )
    RAGD_LOG_LEVEL: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least level that is logged"
    )
    RAGD_WEB_WORKERS: Count = Field(2, description="Processes of the web server")
    RAGD_WEB_THREADS: Count = Field(12, description="Threads per web process; all but one may stream answers")
    RAGD_QUEUE_MAX_S: float = Field(
        1.0, ge=0, description="Most seconds that a request of a program waits for a thread, else 503; 0: no limit"
    )
    RAGD_WORKER_PROCESSES: Count = Field(2, description="Processes of the worker: documents ingested at the same time")

    RAGD_EMBED_MODEL: str = Field(
        "all-MiniLM-L6-v2", description="Embedding model of new collections; the default runs on this machine"
    )
    RAGD_EMBED_DIMS: Annotated[int, Field(ge=1, le=4000)] = Field(384, description="Dimensions of that model's vectors")
    RAGD_EMBED_PATH: str = Field(
        "",
        description="Folders of ONNX models in the sentence-transformers form, separated by `:`; the first is the "
        "default of new collections where `RAGD_EMBED_MODEL` is unset",
    )
    RAGD_EMBED_PROMPTS: Annotated[str, AfterValidator(check_preset)] = Field(
        "",
        description="Prompts before texts for embedding endpoints, by name: `e5`, `bge-en`, `nomic`, ...; unset: none",
    )
    RAGD_EMBED_QUERY_PROMPT: str = Field("", description="Prompt before queries in their place")
    RAGD_EMBED_PASSAGE_PROMPT: str = Field("", description="Prompt before passages in their place")
    RAGD_SPARSE_PATH: str = Field(
        "",
        description="Folders of sparse document encoders (SPLADE-doc), separated by `:`, that keyword search may use "
        "in place of words; unset: there are none",
    )
    EMBED_BASE_URL: str = Field("", description="OpenAI-compatible endpoint for embeddings; unset: api.openai.com")
    EMBED_API_KEY: SecretStr = Field(
        SecretStr(""), description="Key for the embedding endpoint; unset: `OPENAI_API_KEY`"
    )
    RAGD_EMBED_TIMEOUT_S: Seconds = Field(30.0, description="Longest wait for one embedding request, seconds")
    RAGD_EMBED_BATCH_SIZE: Annotated[int, Field(ge=1, le=2048)] = Field(64, description="Texts per embedding request")
    RAGD_EMBED_REQUESTS_PER_MINUTE: Natural = Field(
        0, description="Requests that all workers together send to one embedding endpoint in a minute; 0: any number"
    )
    RAGD_EMBED_TOKENS_PER_MINUTE: Natural = Field(
        0, description="Tokens, estimated, that all workers together send to it in a minute; 0: any number"
    )

    RAGD_RERANK_BASE_URL: str = Field(
        "", description="`/rerank` endpoint (Cohere, Jina, vLLM, TEI): the reranker `endpoint`; unset: there is none"
    )
    RAGD_RERANK_MODEL: str = Field("", description="Its model; unset: the server has only one (TEI)")
    RAGD_RERANK_API_KEY: SecretStr = Field(SecretStr(""), description="Key for the reranking endpoint")
    RAGD_RERANK_TIMEOUT_S: Seconds = Field(30.0, description="Longest wait for one reranking, seconds")
    RAGD_CROSS_ENCODER_PATH: str = Field(
        "",
        description="Folder with `model.onnx` and `tokenizer.json`: the reranker `cross-encoder`; unset: there is none",
    )

    LLM_BASE_URL: str = Field(
        "", description="OpenAI-compatible endpoint for answers; unset and no key: answers are extractive"
    )
    OPENAI_API_KEY: SecretStr = Field(SecretStr(""), description="Key for the chat endpoint")
    RAGD_LLM_MODEL: str = Field("gpt-4o-mini", description="Chat model; it answers when an endpoint or a key is set")
    RAGD_LLM_TIMEOUT_S: Seconds = Field(60.0, description="Longest wait for one answer, seconds")
    RAGD_LLM_MAX_TOKENS: Count = Field(1024, description="Longest answer, tokens")

    RAGD_JUDGE_BASE_URL: str = Field(
        "", description="OpenAI-compatible endpoint of the judge `llm`; unset: `LLM_BASE_URL`"
    )
    RAGD_JUDGE_API_KEY: SecretStr = Field(
        SecretStr(""), description="Key for that endpoint; unset, and no endpoint of its own: `OPENAI_API_KEY`"
    )
    RAGD_JUDGE_MODEL: str = Field("", description="Chat model that judges answers; unset: `RAGD_LLM_MODEL`")
    RAGD_JUDGE_TIMEOUT_S: Seconds = Field(120.0, description="Longest wait for one annotation, seconds")
    RAGD_JUDGE_MAX_TOKENS: Count = Field(4096, description="Longest annotation, tokens")
    RAGD_JUDGE_PATH: str = Field(
        "",
        description="Folder with `config.json`, `tokenizer.json` and `model.onnx` of a model that tells for the judge "
        "`embedded` what is supported; unset: its own coefficients do",
    )

    RAGD_MAX_DOCUMENT_MB: Count = Field(50, description="Largest document, MB (1 MB = 1,000,000 bytes)")
    RAGD_IMPORT_MAX_MB: Count = Field(
        20_000, description="Largest export that is imported, unpacked, MB (1 MB = 1,000,000 bytes)"
    )
    RAGD_PARSE_TIMEOUT_S: Seconds = Field(60.0, description="Longest time to parse one file, seconds")
    RAGD_PARSE_MEMORY_MB: Annotated[int, Field(ge=256)] = Field(
        1536, description="Memory limit of the parsing process, MB"
    )
    RAGD_OCR: Literal["auto", "rapidocr", "tesseract", "off"] = Field(
        "auto", description="Text recognition of scans: `auto` (what is installed), `rapidocr`, `tesseract`, `off`"
    )
    RAGD_OCR_MAX_PAGES: Count = Field(500, description="Most pages of one document that text recognition reads")
    RAGD_PARSE_MAX_CHARS: Count = Field(20_000_000, description="Longest text of one document, characters")
    RAGD_EXACT_THRESHOLD: Natural = Field(
        20_000, description="Chunks up to which vector search is exact; above it HNSW is used"
    )

    RAGD_FETCH_CONTACT: str = Field(
        "", description="Web or mail address that fetches name in their User-Agent, for owners of sites; unset: none"
    )
    RAGD_FETCH_ALLOWED_NETWORKS: CommaList = Field(
        [], description="Private networks that may be fetched from, such as `10.1.0.0/16`, comma-separated; unset: none"
    )
    RAGD_FETCH_TIMEOUT_S: Seconds = Field(60.0, description="Longest time for one request to a site, seconds")
    RAGD_FETCH_PAUSE_S: Annotated[float, Field(ge=0)] = Field(
        1.0, description="Least time between two requests to one site, seconds"
    )
    RAGD_SOURCE_FOLDERS: CommaList = Field(
        [], description="Folders of the server that sources may read, comma-separated; unset: none"
    )
    RAGD_SOURCE_MAX_ITEMS: Annotated[int, Field(gt=0)] = Field(20_000, description="Most items of one source")
    RAGD_S3_ENDPOINT: str = Field(
        "", description="S3-compatible server that buckets are read from with the keys below; unset: Amazon's"
    )
    RAGD_S3_BUCKETS: CommaList = Field(
        [], description="Buckets that may be read with these keys, comma-separated; unset: all that the keys open"
    )
    AWS_ACCESS_KEY_ID: str = Field("", description="Access key for that server; unset: buckets are read without a key")
    AWS_SECRET_ACCESS_KEY: SecretStr = Field(SecretStr(""), description="Its secret")
    AWS_SESSION_TOKEN: SecretStr = Field(SecretStr(""), description="Session token of a temporary key")
    AWS_REGION: str = Field("", description="Region of the buckets; unset: the server is asked")

    RAGD_RECALL_WARNING: Annotated[float, Field(ge=0, le=1)] = Field(
        0.95, description="Recall of a vector index below which its collection's page warns, 0 to 1"
    )

    RAGD_EVALUATION_BANDS: str = Field(
        "", description='Bounds of a good and a poor score as JSON, such as `{"completeness": [0.8, 0.6]}`'
    )

    RAGD_CAPTURE_CONTENT: Literal["full", "hash", "none"] = Field(
        "full", description="Texts in the local spans: as they are, hashed, or left out"
    )
    RAGD_CAPTURE_VECTORS: bool = Field(
        False, description="Whether spans of embedding calls show the vectors of up to eight texts"
    )
    RAGD_OTLP_CONTENT: Literal["full", "hash", "none"] = Field(
        "none", description="Texts in spans that leave this machine: as they are, hashed, or left out"
    )
    OTEL_EXPORTER_OTLP_ENDPOINT: str = Field(
        "", description="OTLP/HTTP endpoint that spans are also sent to; unset: none"
    )
    OTEL_EXPORTER_OTLP_HEADERS: SecretStr = Field(
        SecretStr(""), description="Headers of what is sent there, such as a key: `name=value`, comma-separated"
    )
    RAGD_METRICS_KEY: SecretStr = Field(
        SecretStr(""), description="What `/metrics` asks for as a bearer; unset: only this machine reads it"
    )
    RAGD_INDEX_VERSION_KEEP_DAYS: Natural = Field(
        7, description="Days that the index version before the present one is kept for the way back"
    )
    RAGD_REVISIONS_KEPT: Natural = Field(10, description="Earlier revisions that are kept of each document")
    RAGD_DELETED_KEPT_DAYS: Natural = Field(
        0, description="Days that the content of deleted documents is kept for searches as of an earlier time; 0: none"
    )
    RAGD_TRASH_DAYS: Natural = Field(
        30, description="Days that documents and collections deleted on pages are kept; 0: they are deleted at once"
    )
    RAGD_EVALUATION_PROCESSES: Count = Field(
        1, description="Evaluation runs that are worked at at the same time, each by one process of the worker"
    )
    RAGD_EVALUATION_RETENTION_DAYS: Natural = Field(
        0, description="Days that evaluation runs are kept; baselines and each set's newest stay; 0 keeps all"
    )
    RAGD_RUN_RETENTION_DAYS: Natural = Field(0, description="Days that stored queries are kept; 0 keeps them for ever")
    RAGD_SPAN_RETENTION_DAYS: Natural = Field(30, description="Days that spans are kept; 0 keeps them for ever")
    RAGD_SPAN_MAX_MB: Natural = Field(
        20_000, description="MB that spans may take on disk; the oldest go then; 0: any amount"
    )

    RAGD_BACKUP_TO: str = Field(
        "",
        description="Folder or `s3://BUCKET/PREFIX` of backups, apart from this machine's disk; unset: none is named",
    )
    RAGD_BACKUP_KEY: SecretStr = Field(SecretStr(""), description="Key of age that backups are encrypted with")
    RAGD_BACKUP_EVERY: Literal[
        "off", "daily", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"
    ] = Field(
        "off",
        description="When the worker backs the server up: `off`, `daily`, or weekly on a day: `monday` to `sunday`",
    )
    RAGD_BACKUP_HOUR: Annotated[int, Field(ge=0, le=23)] = Field(1, description="Hour of that backup, UTC")
    RAGD_BACKUP_KEEP: Natural = Field(7, description="Newest backups of the server that stay; 0 keeps all")
    RAGD_BACKUP_WAL_S: Natural = Field(
        0,
        description="Seconds after which `make run` carries the write-ahead log there, again and again; 0: not at all",
    )

    RAGD_JOB_LEASE_S: Count = Field(
        30, description="Seconds without a sign of life after which another worker takes a job over"
    )
    RAGD_JOB_MAX_ATTEMPTS: Count = Field(
        3, description="Times that a job is tried before it counts as failed, or its file is quarantined"
    )
    RAGD_QUEUE_MAX_JOBS: Natural = Field(50_000, description="Queue limit in jobs: more are answered 429; 0: unlimited")
    RAGD_QUEUE_MAX_MB: Natural = Field(
        20_000, description="Queue limit in MB of uploaded files: more are answered 429; 0: unlimited"
    )

    RAGD_OWN_FILES_MB: Natural = Field(
        0, description="MB of files that a person who may only ask may add for their own questions; 0: none"
    )

    RAGD_KEY_MAX_DAYS: Annotated[int, Field(ge=0, le=3652)] = Field(
        0, description="Longest life of an API key in days, which one has that states none; 0: keys need not end"
    )
    RAGD_REQUESTS_PER_MINUTE: Natural = Field(
        0, description="Requests in a minute of one person, and of one API key that states no number; 0: any number"
    )
    RAGD_TOKENS_PER_DAY: Natural = Field(
        0, description="Tokens of model calls in a day (UTC) of one person, and of such a key; 0: any number"
    )
    RAGD_WRONG_KEYS_PER_MINUTE: Natural = Field(
        30, description="Unknown API keys from one address in a minute, beyond which it is answered 429; 0: any number"
    )

    RAGD_ADMIN_USER: str = Field("admin", min_length=1, description="Name of the first administrator")
    RAGD_ADMIN_PASSWORD: SecretStr = Field(
        SecretStr(""),
        description="Their password, by the rules of all passwords; unset: generated into `RAGD_VAR/admin_password`",
    )

    @field_validator("DATABASE_URL", "DATABASE_REPLICA_URL")
    @classmethod
    def check_database_url(cls, url: str) -> str:
        return check_database_parts(url, DATABASE_SCHEMES)

    @field_validator("CELERY_BROKER_URL")
    @classmethod
    def check_broker_url(cls, url: str) -> str:
        return check_scheme(url, BROKER_SCHEMES)

    @field_validator(
        "EMBED_BASE_URL",
        "LLM_BASE_URL",
        "RAGD_JUDGE_BASE_URL",
        "RAGD_RERANK_BASE_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "RAGD_S3_ENDPOINT",
    )
    @classmethod
    def check_http_url(cls, url: str) -> str:
        return check_scheme(url, HTTP_SCHEMES)

    @field_validator("RAGD_FETCH_ALLOWED_NETWORKS")
    @classmethod
    def check_networks(cls, networks: list[str]) -> list[str]:
        return check_networks(networks)

    @field_validator("RAGD_EVALUATION_BANDS")
    @classmethod
    def check_bands(cls, text: str) -> str:
        try:
            read_bands(text)
        except InvalidInput as error:
            raise ValueError(f"a JSON object of known metrics ({error})") from None
        return text

    @field_validator("RAGD_VAR")
    @classmethod
    def make_absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()


class Variables(EnvSettingsSource):
    """The environment without those that pages alone set."""

    def __call__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__call__().items() if name not in ON_PAGES_ALONE}


class Environment(MailSettings, SignOnSettings, ServerSettings):
    """The settings of one process as it starts, before those of pages. Empty variables count as unset."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, Variables(settings_cls)

    def as_settings(self) -> dict[str, Any]:
        """Every value under the name of its variable, secrets as they are."""
        return {name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in self}


def read_environment() -> Environment:
    """The typed settings of this process. Raises SettingError, which names every wrong variable."""
    values, problems = read_secret_files(secret_names(), os.environ)
    problems += [
        f"{name}={os.environ[name]!r} is not accepted: expected it on the page Server settings or Retention. Unset it."
        for name in sorted(ON_PAGES_ALONE & os.environ.keys())
    ]
    try:
        environment = Environment(**values)  # type: ignore[arg-type]  # as a variable would give them
    except ValidationError as error:
        problems.append(describe_errors(error, hidden=values))
    if problems:
        raise SettingError("\n".join(problems))
    return environment


def secret_names() -> list[str]:
    """The settings that open something: never shown, and given by a file where NAME_FILE names one."""
    fields = Environment.model_fields
    return [name for name in fields if fields[name].annotation is SecretStr or name in IN_PLAIN]


def local_address(host: str, port: int) -> str:
    """Where this machine reaches the web server."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}/"


def describe_errors(error: ValidationError, hidden: Container[str] = ()) -> str:
    """One line per wrong variable: name, the value that came (never a secret nor one of `hidden`), what is accepted."""
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0])
        field = Environment.model_fields[name]
        _, scheme, rest = str(problem["input"]).partition("://")
        may_open = name == "RAGD_SECRET_KEY_FALLBACKS" or (name in IN_PLAIN and (":" in rest or not scheme))
        is_hidden = field.annotation is SecretStr or may_open or "@" in str(problem["input"])
        shown = "(hidden)" if is_hidden or name in hidden else repr(problem["input"])
        accepted = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else describe_accepted(name)
        lines.append(f"{name}={shown} is not accepted: expected {accepted}. Correct the variable or unset it.")
    return "\n".join(lines)


def describe_accepted(name: str) -> str:
    """What a variable accepts, in words."""
    field = Environment.model_fields[name]
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(get_args(annotation))
    if annotation is bool:
        return "true or false"
    kind = {int: "a whole number", float: "a number", Path: "a path"}.get(annotation, "text")
    bounds = [words for item in field.metadata for words in describe_bound(item)]
    return kind + (" " + " and ".join(bounds) if bounds else "")


def describe_bound(item: object) -> list[str]:
    """The words for one constraint of a field; [] for anything else."""
    match item:
        case annotated_types.Ge(ge=bound):
            return [f"of at least {bound}"]
        case annotated_types.Gt(gt=bound):
            return [f"above {bound}"]
        case annotated_types.Le(le=bound):
            return [f"of at most {bound}"]
        case annotated_types.MinLen():
            return ["that is not empty"]
        case _:
            return []


def default_model_name(environment: Environment) -> str:
    """RAGD_EMBED_MODEL; "" where it is not stated and folders are: then the first of RAGD_EMBED_PATH is meant."""
    is_stated = "RAGD_EMBED_MODEL" in environment.model_fields_set
    return environment.RAGD_EMBED_MODEL if is_stated or not environment.RAGD_EMBED_PATH else ""


def list_variables() -> list[str]:
    """The names that the environment may state, in the order of the documentation."""
    return [name for name in Environment.model_fields if name not in ON_PAGES_ALONE]


def check_changes(present: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """(the typed values of the changes, name -> what was expected of each that is refused) beside the present settings.

    changes: text as a variable would give it, or a list of lines.
    """
    try:
        environment = Environment(**{**present, **changes})
    except ValidationError as error:
        problems = [(str(each["loc"][0]), each) for each in error.errors()]
        return {}, {
            name: str(each["ctx"]["error"]) if each["type"] == "value_error" else describe_accepted(name)
            for name, each in problems
        }
    values = environment.as_settings()
    return {name: values[name] for name in changes}, {}


def describe_variables() -> str:
    """The tables of all variables and of all settings of pages in Markdown."""
    alone = [name for name in Environment.model_fields if name in ON_PAGES_ALONE]
    return f"{_table('variable', list_variables())}\n\nOn pages alone:\n\n{_table('setting', alone)}"


def _table(head: str, names: Iterable[str]) -> str:
    fields = Environment.model_fields
    rows = [f"| `{name}` | {describe_default(name)} | {fields[name].description} |" for name in names]
    return "\n".join([f"| {head} | default | meaning |", "|---|---|---|", *rows])


def describe_default(name: str) -> str:
    """The default of a variable as the table shows it."""
    match Environment.model_fields[name].default:
        case "" | []:
            return "unset"
        case SecretStr() as secret:
            return f"`{secret.get_secret_value()}`" if secret.get_secret_value() else "unset"
        case Path() as path:
            return f"`{path.relative_to(REPOSITORY)}`"
        case bool(value):
            return f"`{str(value).lower()}`"
        case float(value):
            return f"`{value:g}`"
        case value:
            return f"`{value}`"


def write_variables(page: Path) -> None:
    """Replace the table of all variables on the page."""
    before, _, rest = page.read_text().partition(TABLE_START)
    _, _, after = rest.partition(TABLE_END)
    page.write_text(f"{before}{TABLE_START}\n{describe_variables()}\n{TABLE_END}{after}")


if __name__ == "__main__":
    write_variables(PAGE)
