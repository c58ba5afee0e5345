"""What each provider of models needs: its address, its key, and how its requests differ from OpenAI's.

Taken from the documentation that each preset links to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from django.utils.translation import gettext_noop as _

from ragd.models.openai_client import OPENAI_FORM, EmbeddingForm

EMBEDDINGS, CHAT, RERANK, JUDGE = "embeddings", "chat", "rerank", "judge"
PURPOSES = {EMBEDDINGS: _("Embeddings"), RERANK: _("Reranking"), CHAT: _("Chat"), JUDGE: _("Judge")}

KEY = "KEY"  # in models_headers: the key itself
JINA_FORM = EmbeddingForm(
    encoding=(("embedding_type", "base64"),),
    query=(("task", "retrieval.query"),),
    passage=(("task", "retrieval.passage"),),
)
COHERE_FORM = EmbeddingForm(
    path="/embed",
    texts="texts",
    dimensions="output_dimension",
    encoding=(("embedding_types", ("float",)),),
    query=(("input_type", "search_query"),),
    passage=(("input_type", "search_document"),),
)
MISTRAL_FORM = EmbeddingForm(dimensions="output_dimension", encoding=(("encoding_format", "float"),))


@dataclass(frozen=True, slots=True)
class Preset:
    """A provider. addresses: the base URL by purpose; a purpose without one is not offered.

    models: an example by purpose, with the dimensions that it gives by itself (None where they do not matter).
    needs: what must be there before it answers, in a sentence. documentation: the page that this follows.
    key_required: no request is answered without a key. key_header: "" for `Authorization: Bearer`. limit_name,
    seed_name: fields of a chat request. form: of an embeddings request. batch_size: most texts in one. gives_logits:
    its reranker answers with the model's output. wants_texts: it wants TEI's request. api_version: the provider has
    dated versions of its API. models_path: of the list of its models, from the base URL; "" where it lists none that
    can be used. models_headers: that the list asks for beside the key.
    """

    key: str
    title: str
    needs: str
    documentation: str
    addresses: Mapping[str, str]
    models: Mapping[str, tuple[str, int | None]] = field(default_factory=dict)
    key_required: bool = False
    key_header: str = ""
    limit_name: str = "max_tokens"
    seed_name: str = "seed"
    form: EmbeddingForm = OPENAI_FORM
    batch_size: int = 2048
    gives_logits: bool = False
    wants_texts: bool = False
    api_version: bool = False
    models_path: str = "models"
    models_headers: tuple[tuple[str, str], ...] = ()

    def offers(self, purpose: str) -> bool:
        return purpose in self.addresses

    def address(self, base_url: str, model: str, api_version: str) -> str:
        """Where requests go. With a dated version, Azure's form: a path for each deployment, named by the model."""
        if not (self.api_version and api_version):
            return base_url.rstrip("/")
        parts = urlsplit(base_url)
        root = f"{parts.scheme}://{parts.netloc}/openai/deployments/{quote(model, safe='')}"
        return f"{root}?api-version={quote(api_version, safe='')}"


def _same(address: str, *purposes: str) -> dict[str, str]:
    return dict.fromkeys(purposes, address)


LIST = (
    Preset(
        "ollama",
        "Ollama",
        _("The model, pulled with ollama pull. No key."),
        "https://docs.ollama.com/api/openai-compatibility",
        _same("http://127.0.0.1:11434/v1", EMBEDDINGS, CHAT, JUDGE),
        {EMBEDDINGS: ("nomic-embed-text", 768), CHAT: ("llama3.2", None), JUDGE: ("llama3.2", None)},
    ),
    Preset(
        "vllm",
        "vLLM",
        _("One server for each model: vllm serve MODEL. The key of --api-key, if it was started with one."),
        "https://docs.vllm.ai/en/stable/serving/openai_compatible_server/",
        _same("http://127.0.0.1:8000/v1", EMBEDDINGS, RERANK, CHAT, JUDGE),
        {
            EMBEDDINGS: ("BAAI/bge-m3", 1024),
            RERANK: ("BAAI/bge-reranker-v2-m3", None),
            CHAT: ("Qwen/Qwen3-8B", None),
            JUDGE: ("Qwen/Qwen3-8B", None),
        },
    ),
    Preset(
        "llama_cpp",
        "llama.cpp",
        _(
            "One llama-server for each model, with --embeddings for embeddings and --reranking for reranking. The key"
            " of --api-key, if it was started with one."
        ),
        "https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",
        _same("http://127.0.0.1:8080/v1", EMBEDDINGS, RERANK, CHAT, JUDGE),
        gives_logits=True,
    ),
    Preset(
        "lm_studio",
        "LM Studio",
        _("The server of the Developer tab (or lms server start), and the model's identifier there. No key."),
        "https://lmstudio.ai/docs/developer/openai-compat",
        _same("http://127.0.0.1:1234/v1", EMBEDDINGS, CHAT, JUDGE),
        {EMBEDDINGS: ("text-embedding-nomic-embed-text-v1.5", 768)},
    ),
    Preset(
        "tei",
        "Text Embeddings Inference (TEI)",
        _("One server for each model. The key of --api-key, if it was started with one."),
        "https://huggingface.co/docs/text-embeddings-inference/quick_tour",
        {EMBEDDINGS: "http://127.0.0.1:8080/v1", RERANK: "http://127.0.0.1:8080"},
        {EMBEDDINGS: ("BAAI/bge-m3", 1024), RERANK: ("BAAI/bge-reranker-v2-m3", None)},
        batch_size=32,
        wants_texts=True,
    ),
    Preset(
        "openai",
        "OpenAI",
        _("An API key of the project."),
        "https://platform.openai.com/docs/api-reference/introduction",
        _same("https://api.openai.com/v1", EMBEDDINGS, CHAT, JUDGE),
        {EMBEDDINGS: ("text-embedding-3-small", 1536), CHAT: ("gpt-4o-mini", None), JUDGE: ("gpt-4o-mini", None)},
        key_required=True,
        limit_name="max_completion_tokens",
    ),
    Preset(
        "azure",
        "Azure OpenAI",
        _(
            "The resource's address, a key of the resource, and the name of the deployment as the model. With an API"
            " version such as 2024-10-21, requests go to the deployment's own path; without one, to the v1 API."
        ),
        "https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle",
        _same("https://RESOURCE.openai.azure.com/openai/v1", EMBEDDINGS, CHAT, JUDGE),
        key_required=True,
        key_header="api-key",
        limit_name="max_completion_tokens",
        api_version=True,
        models_path="",  # it lists models, and deployments are asked
    ),
    Preset(
        "anthropic",
        "Anthropic",
        _("An API key. Chat uses the endpoint that is compatible with OpenAI."),
        "https://platform.claude.com/docs/en/api/openai-sdk",
        _same("https://api.anthropic.com/v1", CHAT, JUDGE),
        key_required=True,
        models_headers=(("x-api-key", KEY), ("anthropic-version", "2023-06-01")),
    ),
    Preset(
        "gemini",
        "Google Gemini",
        _("An API key of AI Studio. It uses the endpoint that is compatible with OpenAI."),
        "https://ai.google.dev/gemini-api/docs/openai",
        _same("https://generativelanguage.googleapis.com/v1beta/openai", EMBEDDINGS, CHAT, JUDGE),
        {EMBEDDINGS: ("gemini-embedding-001", 3072)},
        key_required=True,
        batch_size=100,
    ),
    Preset(
        "bedrock",
        "Amazon Bedrock",
        _("An API key of Bedrock, and the region in the address. Enter the model's id where no list is given."),
        "https://docs.aws.amazon.com/bedrock/latest/userguide/inference-chat-completions.html",
        _same("https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1", CHAT, JUDGE),
        key_required=True,
        limit_name="max_completion_tokens",
    ),
    *(
        Preset(key, title, _("An API key."), documentation, _same(address, CHAT, JUDGE), key_required=True)
        for key, title, documentation, address in (
            ("openrouter", "OpenRouter", "https://openrouter.ai/docs", "https://openrouter.ai/api/v1"),
            ("groq", "Groq", "https://console.groq.com/docs/openai", "https://api.groq.com/openai/v1"),
            ("deepseek", "DeepSeek", "https://api-docs.deepseek.com", "https://api.deepseek.com/v1"),
        )
    ),
    Preset(
        "mistral",
        "Mistral",
        _("An API key of the workspace."),
        "https://docs.mistral.ai/api",
        _same("https://api.mistral.ai/v1", EMBEDDINGS, CHAT, JUDGE),
        {
            EMBEDDINGS: ("mistral-embed", 1024),
            CHAT: ("mistral-small-latest", None),
            JUDGE: ("mistral-small-latest", None),
        },
        key_required=True,
        seed_name="random_seed",
        form=MISTRAL_FORM,
        batch_size=512,
    ),
    Preset(
        "cohere",
        "Cohere",
        _("An API key. Embeddings and reranking use the v2 API, chat the compatibility API."),
        "https://docs.cohere.com/reference/about",
        {
            EMBEDDINGS: "https://api.cohere.com/v2",
            RERANK: "https://api.cohere.com/v2",
            CHAT: "https://api.cohere.ai/compatibility/v1",
            JUDGE: "https://api.cohere.ai/compatibility/v1",
        },
        {
            EMBEDDINGS: ("embed-v4.0", 1536),
            RERANK: ("rerank-v3.5", None),
            CHAT: ("command-a-03-2025", None),
            JUDGE: ("command-a-03-2025", None),
        },
        key_required=True,
        form=COHERE_FORM,
        batch_size=96,
        models_path="/v1/models?page_size=1000",
    ),
    Preset(
        "jina",
        "Jina AI",
        _("An API key."),
        "https://api.jina.ai/docs",
        _same("https://api.jina.ai/v1", EMBEDDINGS, RERANK),
        {EMBEDDINGS: ("jina-embeddings-v3", 1024), RERANK: ("jina-reranker-v2-base-multilingual", None)},
        key_required=True,
        form=JINA_FORM,
    ),
    Preset(
        "other",
        _("Other"),
        _("A server that speaks OpenAI's protocol, or /rerank as Cohere, Jina and TEI do."),
        "https://platform.openai.com/docs/api-reference/introduction",
        _same("", EMBEDDINGS, RERANK, CHAT, JUDGE),
    ),
)
# dimensions of the models that the providers' documentation names
USUAL_DIMS = {usual[0]: usual[1] for preset in LIST if (usual := preset.models.get(EMBEDDINGS)) is not None}
PRESETS = {preset.key: preset for preset in LIST}
OTHER = PRESETS["other"]


def chat_preset_of(base_url: str) -> Preset:
    """Whose chat requests an address of the environment wants: by its host; "" is OpenAI's own; else OTHER."""
    if not base_url:
        return PRESETS["openai"]
    host = (urlsplit(base_url).hostname or "").lower()
    known = (
        (preset, urlsplit(preset.addresses[CHAT]).hostname)
        for preset in LIST
        if preset.key_required and preset.offers(CHAT)
    )
    return next((preset for preset, own in known if own == host and preset.key != "openai"), OTHER)
