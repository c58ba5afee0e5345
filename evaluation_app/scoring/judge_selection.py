"""The settings of a run, what of them a server can do, and the judge that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, get_args

from django.conf import settings as site
from django.db import transaction

from collections_app.audit import services
from collections_app.endpoints import endpoints
from collections_app.endpoints.model_presets import CHAT
from collections_app.errors import ServiceError
from collections_app.index.stores import LOCAL_DIMS, LOCAL_MODEL, embedder_for
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.llm_judge import LlmJudge
from evaluation_app.judges.protocol import MEMBERS_MAX, MEMBERS_MIN, Judge, JudgementCache, PanelJudge
from evaluation_app.judges.rubrics import Grader
from evaluation_app.judges.support_model import SupportModel, SupportModelError
from evaluation_app.measures.scores import DOWNSTREAM, LABEL_THRESHOLD, UNITS, Unit, check_threshold
from evaluation_app.models import KeptJudgement
from ragd.errors import InvalidInput
from ragd.identity import can_be_stored
from ragd.models.embedding import CachingEmbedder
from retrieval_app.llm.chat_model import SEED, Endpoint

JudgeName = Literal["none", "embedded", "llm", "panel"]
JUDGES: tuple[JudgeName, ...] = get_args(JudgeName)
EMBEDDED = "embedded"
TEXTS = ("judge_model", "llm_model", "system_prompt")
CUT = 10
CUT_MAX = 1000


@dataclass(frozen=True, slots=True)
class RunSettings:
    """answers: whether questions are answered, or only searched. judge: who judges answers; needs answers.

    cut: the k of precision@k and its kin, whatever the plan's k. unit: of the lengths in TRACe. contributions: whether
    each retrieved document is also given alone to the answerer (eRAG), and downstream: by which measure its answer is
    labelled; needs answers. label_threshold: the least label of a document that MAP and MRR over labels count as
    relevant, above 0 to 1. corrective: whether the collection's corrective step is on, None: as the collection has it.
    as_of: ISO 8601 with a zone, every question meets the collection as it was then; None: as it is.
    llm_model: None for the collection's answerer. judge_model: "" for RAGD_LLM_MODEL; of a panel its members, chat
    models and "embedded" with commas between, "" for the embedded judge and the usual chat model. rubrics: those of the
    set when the run began (`Rubric.as_dict()`).
    """

    answers: bool = True
    judge: JudgeName = "embedded"
    judge_model: str = ""
    cut: int = CUT
    unit: Unit = "tokens"
    contributions: bool = False
    downstream: str = "f1"
    label_threshold: float = LABEL_THRESHOLD
    llm_model: str | None = None
    system_prompt: str | None = None
    corrective: bool | None = None
    as_of: str | None = None
    rubrics: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for name in TEXTS:
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and can_be_stored(text)):
                raise InvalidInput(f"{name} must be a text without NUL and half characters, not {text!r}", field=name)
        if self.judge not in JUDGES:
            raise InvalidInput(f"judge must be one of {', '.join(JUDGES)}, not {self.judge!r}", field="judge")
        if self.judge == "panel":
            _check_panel(self.panel)
        if self.unit not in UNITS:
            raise InvalidInput(f"unit must be one of {', '.join(UNITS)}, not {self.unit!r}", field="unit")
        if self.downstream not in DOWNSTREAM:
            raise InvalidInput(
                f"downstream must be one of {', '.join(DOWNSTREAM)}, not {self.downstream!r}", field="downstream"
            )
        try:
            check_threshold(self.label_threshold)
        except (TypeError, ValueError):
            raise InvalidInput(
                f"label_threshold must be a number above 0 and at most 1, not {self.label_threshold!r}",
                field="label_threshold",
            ) from None
        if not isinstance(self.cut, int) or isinstance(self.cut, bool) or not 1 <= self.cut <= CUT_MAX:
            raise InvalidInput(f"cut must be a whole number from 1 to {CUT_MAX}, not {self.cut!r}", field="cut")
        if self.as_of is not None:
            object.__setattr__(self, "as_of", _check_time(self.as_of))
        if not self.answers and (self.judge != "none" or self.contributions):
            requested = "judge" if self.judge != "none" else "contributions"
            raise InvalidInput(
                f"{requested} needs answers, and this run only searches; set answers to true, or judge to 'none' and "
                "contributions to false",
                field=requested,
            )

    @property
    def panel(self) -> tuple[str, ...]:
        """The judges of a panel: EMBEDDED, and names of chat models, "" for the usual one."""
        names = tuple(name.strip() for name in self.judge_model.split(","))
        return names if any(names) else (EMBEDDED, "")

    @property
    def chat_judges(self) -> tuple[str, ...]:
        """The chat models that judge, "" for the usual one."""
        members = {"llm": (self.judge_model,), "panel": self.panel}.get(self.judge, ())
        return tuple(name for name in members if name != EMBEDDED or self.judge == "llm")

    @property
    def moment(self) -> datetime | None:
        """as_of as a time."""
        return datetime.fromisoformat(self.as_of) if self.as_of else None

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON; without `rubrics` where there are none."""
        values = asdict(self)
        rubrics = list(values.pop("rubrics"))
        return values | ({"rubrics": rubrics} if rubrics else {})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSettings:
        """Fields that are missing have their defaults. Raises InvalidInput for unknown and wrong ones."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidInput(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}", field=unknown[0])
        return cls(**{**values, "rubrics": tuple(values.get("rubrics", ()))})


def _check_panel(names: Sequence[str]) -> None:
    """Raises InvalidInput."""
    wrong = (
        "names a judge twice" if len(set(names)) < len(names)
        else f"names {len(names)}" if not MEMBERS_MIN <= len(names) <= MEMBERS_MAX
        else "has a blank name" if "" in names and names != (EMBEDDED, "")
        else ""
    )  # fmt: skip
    if wrong:
        raise InvalidInput(
            f"judge_model of a panel must name {MEMBERS_MIN} to {MEMBERS_MAX} different judges with commas between, "
            f"such as 'embedded, gpt-4o', and it {wrong}: {', '.join(names)!r}",
            field="judge_model",
        )


def _check_time(text: Any) -> str:
    """The time as datetime writes it. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidInput(
            f"as_of must be a time with a zone, such as 2026-01-31T12:00:00Z, not {text!r}", field="as_of"
        )
    return moment.isoformat()


class StoredJudgements:
    """A `JudgementCache` over the table of kept judgements. Processes may share it: the first of a key stays."""

    def get(self, key: str) -> Mapping[str, Any] | None:
        record = KeptJudgement.objects.filter(pk=key).values_list("value", flat=True).first()
        return None if record is None else dict(record)

    def put(self, key: str, model: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
        row, _ = KeptJudgement.objects.get_or_create(key=key, defaults={"model": model, "value": dict(value)})
        return dict(row.value)


@transaction.atomic
def clear_stored(model: str | None = None, *, actor: services.Actor) -> int:
    """Forget the judgements of one model, None: of all; returns how many went. The next run asks the model again.

    What runs have stored stays as it is.
    """
    rows = KeptJudgement.objects.all() if model is None else KeptJudgement.objects.filter(model=model)
    deleted, _ = rows.delete()
    if deleted:
        message = "of every model" if model is None else f"of {model}"
        subject = KeptJudgement(key="", model=model or "every model")
        services.record(actor, [subject], services.DELETION, f"forgot {deleted} kept judgements {message}")
    return deleted


def open_judge(settings: RunSettings, cache: JudgementCache | None = None) -> Judge | None:
    """None for judge "none". cache: for a chat model's judgements; None: those kept in the database.

    Raises ServiceError (422, "no_judge_model") when a chat model is asked for and no endpoint is set up, or when
    RAGD_JUDGE_PATH names no folder of a model that can judge.
    """
    if settings.judge == "none":
        return None
    if settings.judge == EMBEDDED:
        return _embedded_judge(settings.unit, site.RAGD_JUDGE_PATH)
    cache = cache if cache is not None else StoredJudgements()
    if settings.judge == "llm":
        return open_chat_judge(settings.judge_model, cache, settings.unit)
    return PanelJudge([
        _embedded_judge(settings.unit, site.RAGD_JUDGE_PATH) if name == EMBEDDED
        else open_chat_judge(name, cache, settings.unit)
        for name in settings.panel
    ])  # fmt: skip


def open_chat_judge(model: str, cache: JudgementCache | None, unit: Unit = "tokens", seed: int = SEED) -> LlmJudge:
    """model: "" for the usual one. cache: None keeps nothing. Raises ServiceError as `open_judge`."""
    return LlmJudge(judge_model(model), judge_endpoint(model), judging_embedder(), cache=cache, unit=unit, seed=seed)


def open_grader(judge_model_name: str = "", cache: JudgementCache | None = None) -> Grader | None:
    """For rubrics in words, by the model that would judge; None where no chat model is set up."""
    if not has_judge_model():
        return None
    kept = cache if cache is not None else StoredJudgements()
    return Grader(judge_model(judge_model_name), judge_endpoint(judge_model_name), judging_embedder(), kept)


def has_judge_model() -> bool:
    """Whether a chat model can judge: one is set up for it, or for answers."""
    return endpoints.judge_endpoint() is not None


def judge_model(named: str = "") -> str:
    """The named model, else the judge's: that of its endpoint, or RAGD_JUDGE_MODEL at the endpoint of answers."""
    found = endpoints.judge_endpoint(named)
    if found is None:
        return named or site.RAGD_JUDGE_MODEL or site.RAGD_LLM_MODEL
    usual = site.RAGD_JUDGE_MODEL if found.purpose == CHAT else ""
    return found.model_for(named or usual)


def judge_endpoint(named: str = "") -> Endpoint:
    """Where the judge of that name is asked, "" for the usual one. Raises ServiceError."""
    found = endpoints.judge_endpoint(named)
    if found is None:
        raise ServiceError(
            "the judge 'llm' needs a chat model, and none is set up; add one on the page Models, set "
            "RAGD_JUDGE_BASE_URL or LLM_BASE_URL (or a key for OpenAI), or take the judge 'embedded'",
            type="no_judge_model",
            status=422,
            field="judge",
        )
    return Endpoint.of(found, timeout_s=site.RAGD_JUDGE_TIMEOUT_S, max_tokens=site.RAGD_JUDGE_MAX_TOKENS)


@lru_cache(maxsize=1)
def judging_embedder() -> CachingEmbedder:
    """The local model, whatever the collection uses: the judge and the noise figures are made for its vectors."""
    return CachingEmbedder(embedder_for(LOCAL_MODEL, LOCAL_DIMS))


@lru_cache(maxsize=4)
def _embedded_judge(unit: Unit, path: str) -> EmbeddedJudge:
    """path: RAGD_JUDGE_PATH, "" for none."""
    try:
        support = SupportModel(path) if path else None
    except SupportModelError as error:
        message = f"RAGD_JUDGE_PATH: {error.message}; or unset it"
        raise ServiceError(message, type="no_judge_model", status=422, field="judge") from error
    return EmbeddedJudge(judging_embedder(), unit=unit, support=support)
