"""Models of support from a folder: tiny graphs, made here, that weigh words, and the judge that asks them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors

from benchmarks.written_answers import read_answers
from collections_app.errors import ServiceError
from evaluation_app.golden.questions import Golden
from evaluation_app.judges.embedded_judge import EmbeddedJudge
from evaluation_app.judges.feature_model import accuracy_of
from evaluation_app.judges.protocol import MEASURES, Case, is_refusal, refute
from evaluation_app.judges.support_model import SupportModel, SupportModelError
from evaluation_app.measures.scores import failed, scored, trace_scores
from evaluation_app.scoring.contributions import sentences_of
from evaluation_app.scoring.correctness import measure_correctness
from evaluation_app.scoring.judge_selection import RunSettings, judging_embedder, open_judge
from evaluation_app.scoring.scorer import stated_share
from ragd.models.embedding import LocalEmbedder

WORDS = ["[UNK]", "[CLS]", "[SEP]", "red", "blue", "sea", "house", "the", "is", "."]
PAIR, TOKENS = "TinyForSequenceClassification", "TinyForTokenClassification"
# What a word of the answer (type 1) or of the context (type 0) says; "blue" is wrong unless the context has it too.
WEIGHTS = {"blue": 4.0}


def write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))


def write_graph(path: Path, *, per_token: bool, supported: bool = False, classes: int = 2) -> None:
    """The logit of "unsupported" (of "supported", its negative): 4 for "blue" in the answer, of a pair all of them
    together, less 8 when the context has "blue"; a bias of -2 beside."""
    weights = np.asarray([WEIGHTS.get(word, 0.0) for word in WORDS], dtype=np.float32)
    sign = -1.0 if supported else 1.0
    spread = [sign] if classes == 1 else [0.0, sign, *([0.0] * (classes - 2))]
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["each"]),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["each", "types"], ["said"]),
        helper.make_node("Sub", ["each", "said"], ["context"]),
        helper.make_node("ReduceSum", ["context", "axis"], ["held"], keepdims=1),
        helper.make_node("Mul", ["held", "two"], ["relief"]),
        helper.make_node("ReduceSum", ["said", "axis"], ["all"], keepdims=1),
        helper.make_node("Sub", ["said" if per_token else "all", "relief"], ["less"]),
        helper.make_node("Sub", ["less", "two"], ["score"]),
        *([helper.make_node("Unsqueeze", ["score", "last"], ["wide"])] if per_token else []),
        helper.make_node("Mul", ["wide" if per_token else "score", "spread"], ["logits"]),
    ]
    constants = [
        numpy_helper.from_array(weights, "weights"),
        numpy_helper.from_array(np.asarray([1], dtype=np.int64), "axis"),
        numpy_helper.from_array(np.asarray([-1], dtype=np.int64), "last"),
        numpy_helper.from_array(np.asarray([2.0], dtype=np.float32), "two"),
        numpy_helper.from_array(np.asarray([spread], dtype=np.float32), "spread"),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("input_ids", "token_type_ids")
    ]
    shape: list[Any] = ["batch", "length", classes] if per_token else ["batch", classes]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))


def make_folder(folder: Path, architecture: str, labels: Sequence[str] = (), **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    write_tokenizer(folder)
    per_token = architecture == TOKENS
    write_graph(folder / "model.onnx", per_token=per_token, supported=not per_token, classes=len(labels) or 2)
    named = {"id2label": {str(place): label for place, label in enumerate(labels)}} if labels else {}
    values = {"architectures": [architecture], "max_position_embeddings": 64, **named, **config}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


RED, BLUE = "The sea is red.", "The house is blue."
FORMS = [
    (TOKENS, ()),
    (TOKENS, ("supported", "hallucinated")),
    (PAIR, ()),
    (PAIR, ("consistent",)),
    (PAIR, ("contradiction", "entailment", "neutral")),
]


@pytest.mark.parametrize(("architecture", "labels"), FORMS)
def test_what_the_context_lacks_is_unsupported_sentence_by_sentence(
    tmp_path: Path, architecture: str, labels: tuple[str, ...]
) -> None:
    model = SupportModel(make_folder(tmp_path / "tiny", architecture, labels))
    red, blue = model.doubt(Case.of("Is it red?", ["The sea is red."], f"{RED} {BLUE}"))
    assert red < 0.5 < blue
    assert (model.doubt(Case.of("Is it red?", [RED, BLUE], f"{RED} {BLUE}")) < 0.5).all()
    assert list(model.doubt(Case.of("Is it red?", [], RED))) == [1.0]
    assert not len(model.doubt(Case.of("Is it red?", [RED], "")))


@pytest.mark.parametrize("architecture", [TOKENS, PAIR])
def test_a_long_context_is_read_in_windows_and_one_that_supports_is_enough(tmp_path: Path, architecture: str) -> None:
    window = 160 if architecture == TOKENS else 24
    model = SupportModel(make_folder(tmp_path / "tiny", architecture, max_position_embeddings=window))
    filler = "The house is red. " * 60
    for documents in ([filler + BLUE], [BLUE + filler], [filler + BLUE + filler], [filler, BLUE, filler]):
        assert model.doubt(Case.of("?", documents, BLUE))[0] < 0.5, documents[0][:30]
    assert model.doubt(Case.of("?", [filler], BLUE))[0] > 0.5
    assert model.doubt(Case.of("red " * 500, [filler], f"{'red ' * 500}. {BLUE}"))[-1] > 0.5


@pytest.mark.parametrize("architecture", [TOKENS, PAIR])
@pytest.mark.parametrize(("window", "answer"), [(130, "The sea is blue. " * 12), (256, "blue " * 300)])
def test_no_window_is_longer_than_the_model_reads(
    tmp_path: Path, architecture: str, window: int, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SupportModel(make_folder(tmp_path / "tiny", architecture, max_position_embeddings=window))
    lengths: list[int] = []
    run = model._run

    def measure(session: Any, encoding: Any) -> Any:
        lengths.append(len(encoding))
        return run(session, encoding)

    monkeypatch.setattr(model, "_run", measure)
    model.doubt(Case.of("What is red? " * 20, ["The sea is red. " * 100] * 3, answer))
    assert len(lengths) > 10 and max(lengths) <= window


@pytest.mark.parametrize("name", ["factcg-dbt", "hhemv2-onnx", "minicheck-roberta-large"])
def test_models_with_a_prompt_of_their_own_get_it(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SupportModel(make_folder(tmp_path / name, PAIR))
    texts: list[str] = []
    tokenizer, session = model.files.open()

    class Listening:
        def encode(self, *given: Any, **options: Any) -> Any:
            texts.append(given[0])
            return tokenizer.encode(*given, **options)

    monkeypatch.setattr(model.files, "open", lambda: (Listening(), session))
    model.doubt(Case.of("?", ["The {claim} sea."], "The house is {context}."))
    prompt = texts[-1]
    assert prompt.index("The {claim} sea.") < prompt.index("The house is {context}.") and prompt != texts[0]


def test_the_judge_marks_support_by_the_model_and_all_else_by_itself(tmp_path: Path) -> None:
    case = Case.of("What is red?", [f"{RED} It is cold."], f"{RED} {BLUE}")
    alone = EmbeddedJudge(LocalEmbedder())
    judge = EmbeddedJudge(LocalEmbedder(), support=SupportModel(make_folder(tmp_path / "tiny", TOKENS)))
    judged, beside = judge.judge(case), alone.judge(case)
    assert judged.annotation is not None and beside.annotation is not None
    assert [item.is_supported for item in judged.annotation.support] == [True, False]
    assert judged.scores["adherence"] == scored(0.0) and judged.scores["faithfulness"] == scored(0.5)
    counted = trace_scores(case.context, case.answer, judged.annotation).by_name()
    assert {name: judged.scores[name] for name in counted} == counted
    assert judged.annotation.relevant_keys == beside.annotation.relevant_keys
    assert set(judged.estimates) == set(beside.estimates) - {"adherence", "faithfulness"}
    assert judge.version.startswith(alone.version) and judge.version != alone.version


def test_the_version_changes_with_each_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny", PAIR)
    versions = [SupportModel(folder).version]
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    versions.append(SupportModel(folder).version)
    write_graph(folder / "model.onnx", per_token=False)
    versions.append(SupportModel(folder).version)
    assert len(set(versions)) == 3 and all(version.startswith("tiny ") for version in versions)


def test_what_is_no_such_folder_is_refused_with_its_path(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "tiny", PAIR)
    config = (folder / "config.json").read_text()

    def refusal() -> str:
        with pytest.raises(SupportModelError) as caught:
            SupportModel(folder)
        assert str(folder) in caught.value.message
        return caught.value.message

    for text, named in (
        ("no json", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "none"),
        (json.dumps({"architectures": ["BertModel"]}), "BertModel"),
        (json.dumps({"architectures": [PAIR], "id2label": {"0": "good", "1": "bad"}}), "good, bad"),
    ):
        (folder / "config.json").write_text(text)
        assert named in refusal()
    (folder / "config.json").write_text(config)
    for name in ("config.json", "tokenizer.json", "model.onnx"):
        (folder / name).rename(folder / "away")
        assert name in refusal()
        (folder / "away").rename(folder / name)


@pytest.mark.parametrize("damage", ["no graph", "other classes", "not per token", "not finite", "other tokens"])
def test_a_graph_that_does_not_fit_fails_the_scores_and_says_why(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_folder(tmp_path / "tiny", TOKENS)
    if damage == "no graph":
        (folder / "model.onnx").write_bytes(b"no graph")
    elif damage == "not finite":
        monkeypatch.setitem(WEIGHTS, "red", float("nan"))
        write_graph(folder / "model.onnx", per_token=True)
    elif damage == "other tokens":
        monkeypatch.setattr("tests.evaluation.test_support_model.WORDS", WORDS[:4])
        write_graph(folder / "model.onnx", per_token=True)
    else:
        write_graph(folder / "model.onnx", per_token=damage == "other classes", classes=3 if "other" in damage else 2)
    judged = EmbeddedJudge(LocalEmbedder(), support=SupportModel(folder)).judge(Case.of("?", [RED], RED))
    assert judged.scores == dict.fromkeys(MEASURES, failed("judge_model")) and judged.annotation is None
    assert str(folder) in judged.explanation


def test_the_setting_opens_the_folder_and_a_wrong_one_is_refused(tmp_path: Path, settings: Any) -> None:
    settings.RAGD_JUDGE_PATH = str(make_folder(tmp_path / "tiny", TOKENS))
    judge = open_judge(RunSettings())
    assert judge is not None and " tiny " in judge.version
    assert accuracy_of(f"{judge.name} {judge.version}", "adherence") is None
    settings.RAGD_JUDGE_PATH = str(tmp_path / "nothing")
    with pytest.raises(ServiceError) as caught:
        open_judge(RunSettings())
    assert caught.value.type == "no_judge_model" and "RAGD_JUDGE_PATH" in caught.value.message
    settings.RAGD_JUDGE_PATH = ""
    judge = open_judge(RunSettings())
    assert judge is not None and " " not in judge.version


KETTLE = "The kettle boils water at 100 degrees."
WARRANTY = "The warranty lasts 24 months from the date of sale and does not cover damage from limescale."


def judged(answer: str, *documents: str) -> tuple[float | None, float | None, float | None]:
    """(adherence, faithfulness, stated)."""
    case = Case.of("What is it like?", documents, answer)
    context = [{"key": str(number), "sentences": sentences_of(each)} for number, each in enumerate(case.context)]
    scores = EmbeddedJudge(judging_embedder()).judge(case).scores
    stated = stated_share(sentences_of(case.answer), context, case.question, judging_embedder())
    return scores["adherence"].value, scores["faithfulness"].value, stated.value


@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    "answer",
    [
        "Water boils at 250 degrees [1].",
        "The kettle does not boil water at 100 degrees.",
        "The kettle contains quickly.",
        "The warranty lasts 12 months.",
    ],
)
def test_what_the_context_contradicts_is_supported_by_no_measure(answer: str) -> None:
    assert judged(answer, KETTLE, WARRANTY) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("The rate is 0.5 %.", "The rate is 5 %."), ("It has -5 degrees outside.", "It has 5 degrees outside."),
        ("The fee is 1,200 euros per year.", "The fee is 1,200 euros per month."),
        ("Drei Mitarbeiter arbeiten in Oslo.", "Drei Mitarbeiter arbeiten in Bergen."),
        ("Rauchen ist in der Halle verboten.", "Rauchen ist in der Halle erlaubt."),
        ("Der Umsatz stieg um 5 %.", "Der Umsatz sank um 5 %."),
    ],
)  # fmt: skip
def test_the_word_in_which_a_short_sentence_differs_is_enough(source: str, answer: str) -> None:
    assert (judged(answer, source)[:2], judged(source, source)[:2]) == ((0.0, 0.0), (1.0, 1.0))


def test_what_the_context_says_stays_supported() -> None:
    for answer in ("Water boils at 100 degrees [1].", KETTLE, WARRANTY):
        assert judged(answer, KETTLE, WARRANTY) == (1.0, 1.0, 1.0), answer


LONG = (
    "By June 2014 the ministry of Guinea had opened four upper wards beside the river, because the clinics that stood"
    " there were always full of patients, and the nurses can not treat them in ward B-12 alone."
)


@pytest.mark.parametrize(
    ("said", "instead", "kind"),
    [
        ("Guinea", "Liberia", "name"), ("upper", "lower", "opposite"), ("always", "never", "opposite"),
        ("B-12", "B-19", "number"), ("can not treat", "can treat", "opposite"), ("opened", "not opened", "opposite"),
        ("Guinea", "Guineas", None), ("ministry", "office", None), ("because the", "since the", None),
    ],
)  # fmt: skip
def test_one_fact_changed_in_a_long_copy_is_found_and_another_wording_is_not(
    said: str, instead: str, kind: str | None
) -> None:
    case = Case.of("What happened?", [LONG], LONG.replace(said, instead))
    found = refute(case.answer[0], case.context)
    assert (found and {each.kind for each in found.contradictions}) == (kind and {kind})


def test_a_sentence_is_compared_with_what_it_cites() -> None:
    other = "The old kettle boils water at 90 degrees."
    case = Case.of("?", [KETTLE, other], "The kettle boils water at 90 degrees.")
    (sentence,) = case.answer
    assert refute(sentence, case.context) is None
    assert refute(sentence, case.context, cited=[1]) is None
    found = refute(sentence, case.context, cited=[0])
    assert found is not None and found.is_miscited and found.source_key == "0a"
    assert [(item.said, item.source) for item in found.contradictions] == [("90 degrees", "100 degrees")]
    miscited = replace(case, cited={sentence.key: (0,)})
    judgement = EmbeddedJudge(judging_embedder()).judge(miscited)
    assert judgement.scores["adherence"].value == 1.0 and judgement.refuted[sentence.key].is_miscited


@pytest.mark.fault("UX-F1")
def test_right_answers_are_told_from_wrong_ones() -> None:
    """The figures of `bench_correctness --written` over the answers that no constant was chosen by."""
    sides: dict[bool, list[bool]] = {True: [], False: []}
    for item in read_answers("held_out"):
        case = Case.of(item.question, [item.context], item.text)
        outcome = "abstained" if is_refusal(case) else "answered"
        golden = Golden(item.question, expected_answer=item.expected)
        score = measure_correctness(sentences_of(case.answer), outcome, golden, judging_embedder()).score
        sides[item.is_right].append((score.value or 0.0) >= 0.5)
    assert sum(sides[True]) / len(sides[True]) >= 0.99
    assert sum(sides[False]) / len(sides[False]) <= 0.03
