"""Thresholds fitted to a test set: right answers are not poor, what tells nothing apart stays without colour."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from evaluation_app.measures.catalogue import find
from evaluation_app.models import EvaluationRun, GoldenSet
from evaluation_app.scoring.modes import bands_for, fit_bands
from tests.evaluation.made_runs import make_run
from tests.web.pages import attribute, has, texts

pytestmark = pytest.mark.django_db


@pytest.fixture
def golden_set() -> GoldenSet:
    return GoldenSet.objects.create(name="birds", collection_name="nature", version=1, digest="d" * 64)


def evaluated(golden_set: GoldenSet, rows: list[dict[str, float | None]], **values: Any) -> EvaluationRun:
    return make_run(rows, golden_set=golden_set, **values)


def mixed(count: int = 40) -> list[dict[str, float | None]]:
    """Half right; F1 tells them apart but for one of each, relevance the wrong way round, noise the other way."""
    rows: list[dict[str, float | None]] = []
    for number in range(count):
        is_right, share = number % 2 == 0, number / count
        rows.append(
            {
                "correctness": 1.0 if is_right else 0.0,
                "f1": 0.5 + share / 2 if is_right else share / 2,
                "context_relevance": share / 2 if is_right else 0.5 + share / 2,
                "noise_irrelevant": share / 2 if is_right else 0.4 + share / 2,
                "faithfulness": 1.0,
            }
        )
    rows[0]["f1"], rows[1]["f1"] = 0.1, 0.9
    return rows


def bands_of(name: str, golden_set: GoldenSet, values: list[float]) -> list[str | None]:
    measure = find(name, bands_for(golden_set))
    return [measure.band(value) for value in values]


def test_what_separates_gets_bounds_between_right_and_wrong(golden_set: GoldenSet) -> None:
    evaluated(golden_set, mixed())
    fit = fit_bands(golden_set)
    assert (fit.answers, fit.right, fit.wrong) == (40, 20, 20)
    assert set(fit.bands) == {"correctness", "f1", "noise_irrelevant"}
    assert {name: reason.split(" (")[0] for name, reason in fit.left_out.items()} == {
        "context_relevance": "does not separate right from wrong answers",
        "faithfulness": "the same for every answer",
    }
    golden_set.bands = {name: [band.good, band.poor] for name, band in fit.bands.items()}
    for name in ("f1", "noise_irrelevant"):
        values = [(row["correctness"], float(row[name] or 0)) for row in mixed()]
        right = bands_of(name, golden_set, [value for correct, value in values if correct])
        wrong = bands_of(name, golden_set, [value for correct, value in values if not correct])
        assert right.count("fail") <= 1 and wrong.count("pass") <= 1, "5 % of 20"
        assert right.count("pass") >= 10, name


def test_without_known_answers_the_bounds_are_quantiles(golden_set: GoldenSet) -> None:
    evaluated(golden_set, [{"completeness": number / 20} for number in range(20)])
    fitted = fit_bands(golden_set).bands["completeness"]
    assert (fitted.good, fitted.poor, fitted.auroc, fitted.values) == (0.5, 0.05, None, 20)


def test_only_runs_that_are_alike_are_fitted_to(golden_set: GoldenSet) -> None:
    rows: list[dict[str, float | None]] = [{"completeness": number / 20} for number in range(20)]
    evaluated(golden_set, rows, judge_version="0")
    evaluated(golden_set, rows, set_digest="e" * 64)
    evaluated(golden_set, rows, state="running")
    evaluated(golden_set, rows, settings={"answers": False, "judge": "none", "cut": 10})
    assert len(fit_bands(golden_set).runs) == 1
    newest = evaluated(golden_set, rows, answerer="extractive")
    fit = fit_bands(golden_set)
    assert list(fit.runs) == [newest]
    assert fit_bands(GoldenSet.objects.create(name="empty", collection_name="nature")).runs == ()


def test_adherence_of_quotations_is_not_fitted(golden_set: GoldenSet) -> None:
    rows = [row | {"adherence": float(number % 3 == 0)} for number, row in enumerate(mixed())]
    evaluated(golden_set, rows, answerer="extractive")
    assert "adherence" in fit_bands(golden_set).left_out


def test_rubrics_have_thresholds_like_measures(admin_client: Client, golden_set: GoldenSet) -> None:
    golden_set.rubrics = [{"name": "polite", "kind": "regex", "definition": "please"}]
    golden_set.bands = {"rubric:polite": [0.9, 0.3], "recall": [0.8, 0.4]}
    golden_set.save()
    evaluated(golden_set, [row | {"rubric:polite": (row["correctness"] or 0) / 2} for row in mixed()])
    address = f"/evaluation/sets/{golden_set.pk}/?view=thresholds"
    page = admin_client.get(address)
    assert attribute(page, 'tr[data-measure="rubric:polite"] input', "value") == "0.9"
    assert "0.00 to 0.50" in texts(page, 'tr[data-measure="rubric:polite"] td')[2], "of the latest run"
    names = ("rubric:polite_good", "rubric:polite_poor", "recall_good", "recall_poor")
    values = {name: attribute(page, f'input[name="{name}"]', "value") or "" for name in names}
    assert admin_client.post(address, values).status_code == 302
    golden_set.refresh_from_db()
    assert golden_set.bands == {"rubric:polite": [0.9, 0.3], "recall": [0.8, 0.4]}, "saving loses none"
    fitted = fit_bands(golden_set).bands["rubric:polite"]
    assert (fitted.poor, fitted.good, fitted.auroc) == (0.25, 0.25, 1.0)
    assert attribute(admin_client.get(f"{address}&fit=1"), 'input[name="rubric:polite_poor"]', "value") == "0.25"


def test_the_page_fills_in_the_fit_and_keeps_it_when_it_is_saved(admin_client: Client, golden_set: GoldenSet) -> None:
    address = f"/evaluation/sets/{golden_set.pk}/?view=thresholds"
    assert not has(admin_client.get(address), 'a[href$="&fit=1"]')
    assert not has(admin_client.get(f"{address}&fit=1"), "#fit[data-tone=accent]")
    evaluated(golden_set, mixed())
    plain = admin_client.get(address)
    assert has(plain, 'a[href$="&fit=1"]') and texts(plain, "tbody .chip") == []
    page = admin_client.get(f"{address}&fit=1")
    values = {name: attribute(page, f'input[name="{name}"]', "value") or "" for name in ("f1_good", "f1_poor")}
    fitted = fit_bands(golden_set).bands["f1"]
    assert [float(value) for value in values.values()] == [fitted.good, fitted.poor]
    assert attribute(page, 'input[name="context_relevance_good"]', "value") is None
    assert "0.7" in texts(page, 'tr[data-measure="context_relevance"] td')[2], "the reference, as text"
    golden_set.refresh_from_db()
    assert golden_set.bands == {}, "looking keeps nothing"
    assert admin_client.post(address, values).status_code == 302
    golden_set.refresh_from_db()
    assert golden_set.bands == {"f1": [float(value) for value in values.values()]}
