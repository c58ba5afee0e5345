"""The conformance suite passes here, and each kind of damage makes it fail under the name of the rule it breaks."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ragd
from ragd import conformance
from ragd.conformance import __main__ as command
from ragd.conformance import corpus, golden
from ragd.conformance.golden import DIMS, SimHashEmbedder, result_of, scratch
from ragd.errors import InvalidInput
from ragd.search import retrieval
from ragd.store.store import fetch_all
from ragd.text.tokens import remove_accents
from ragd.types import Candidate, Filters, RetrievePlan

LEFT_BEHIND = """
SELECT nspname FROM pg_namespace WHERE nspname LIKE 'ragd%%'
UNION ALL SELECT relname FROM pg_class WHERE relname LIKE 'chunks_c%%' AND relkind IN ('r', 'p')
UNION ALL SELECT current_setting('search_path')
UNION ALL SELECT name FROM collections
"""


def failures(connection: Any, *only: str, **options: Any) -> dict[str, list[conformance.Failure]]:
    """ "section title" -> what failed."""
    report = conformance.run(connection, only=only, **options)
    return {f"{item.section} {item.title}": list(item.failures) for item in report.results if not item.passed}


@pytest.mark.parametrize("connection", ["psycopg", pytest.param("django", marks=pytest.mark.slow)], indirect=True)
def test_every_rule_passes_and_nothing_stays_behind(connection: Any) -> None:
    before = fetch_all(connection, LEFT_BEHIND)
    steps: list[tuple[int, int]] = []
    report = conformance.run(connection, on_rule=lambda done, total: steps.append((done, total)))
    assert [item for item in report.results if not item.passed] == []
    assert report.passed
    assert {item.section for item in report.results} >= {
        "1.1.1", "1.1.2", "1.1.3", "1.1.4", "1.2.1", "1.2.2", "1.2.3", "1.2.4", "1.2.5", "1.2.6", "1.2.7",
        "2.1", "2.2", "2.3", "3", "4.1", "4.2", "4.3", "4.4", "5.1", "5.2", "5.3", "6",
    }  # fmt: skip
    assert steps == [(n, len(report.results)) for n in range(1, len(report.results) + 1)]
    assert fetch_all(connection, LEFT_BEHIND) == before


def test_a_broken_fuse_is_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ragd.fuse

    def counting_from_zero(sets: Any, method: str = "rrf", params: Any = None) -> list[Candidate]:
        values = dict(params or {})
        return real(sets, method, values | {"rrf_k": values.get("rrf_k", 60) - 1} if method == "rrf" else params)

    monkeypatch.setattr("ragd.fuse", counting_from_zero)
    monkeypatch.setattr("ragd.search.retrieval.fuse", counting_from_zero)
    found = failures(connection, "4.3", "5.1")
    assert "4.3 score = sum of 1 / (rrf_k + rank), ranks from 1, rrf_k 60" in found
    assert "4.3 k is 12 and rrf_k is 60 unless the plan says otherwise" in found
    assert "5.1 golden hybrid lists: ids exactly, scores in order and within 1e-5" in found
    assert not any("golden vector" in name or "golden lexical" in name for name in found)


def test_a_broken_tie_order_is_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_text(score: float, doc_id: str, chunk_index: int) -> tuple[float, str, str]:
        return (-score, doc_id.lower(), str(chunk_index))

    monkeypatch.setattr("ragd.search.fusion.order_key", by_text)
    monkeypatch.setattr("ragd.types.order_key", by_text)
    found = failures(connection, "2.3", "1.2.5")
    assert "2.3 fuse and rerank break ties by (doc_id, chunk_index)" in found
    stable = "1.2.5 equal scores are ordered by (doc_id, chunk_index); scores that are none are an error"
    assert found[stable][0].expected.startswith("['B#2', 'B#10'")


@pytest.mark.parametrize("sign", [1, -1])
def test_a_list_that_leaves_ties_to_chance_is_found(
    connection: Any, monkeypatch: pytest.MonkeyPatch, sign: int
) -> None:
    """By age, oldest or newest first."""
    real = retrieval.lexical_candidates

    def by_age(text: str, plan: RetrievePlan, *rest: Any, **options: Any) -> list[Candidate]:
        found = real(text, replace(plan, candidate_pool=1000), *rest, **options)
        return sorted(found, key=lambda item: (-item.score, sign * (item.chunk_id or 0)))[: plan.pool]

    monkeypatch.setattr(retrieval, "lexical_candidates", by_age)
    found = failures(connection, "2.3")
    assert "2.3 ties at the edge of a pool are decided the same way" in found
    assert "2.3 ties are sorted by doc_id in UTF-8 bytes, whatever the database's locale" in found
    assert "2.3 then by chunk_index as a number" in found
    assert "2.3 the order in which documents came changes no result" in found


def test_a_shifted_chunk_boundary_is_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ragd.chunk

    def one_less(text_or_segments: Any, policy: Any) -> list[ragd.Chunk]:
        first, *others = real(text_or_segments, policy) or [None]
        if first is None or len(first.content) < 2:
            return [first] if first else []
        return [replace(first, content=first.content[:-1], end=first.end - 1), *others]

    monkeypatch.setattr("ragd.chunk", one_less)
    found = failures(connection, "1.1.2", "5.2")
    assert "5.2 every text of the corpus is cut at the pinned places" in found
    assert "1.1.2 nothing but white space lies outside every chunk" in found
    assert found["5.2 every text of the corpus is cut at the pinned places"][0].expected.startswith("[[0, ")


def test_a_filter_that_is_ignored_is_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = retrieval.lexical_candidates

    def unfiltered(text: str, plan: RetrievePlan, *rest: Any, **options: Any) -> Sequence[Candidate]:
        return real(text, replace(plan, filters=Filters()), *rest, **options)

    monkeypatch.setattr(retrieval, "lexical_candidates", unfiltered)
    found = failures(connection, "1.2.3", "4.4")
    assert "1.2.3 a filter that nothing passes gives nothing, and says why" in found
    assert "1.2.3 a filtered list is the unfiltered one without what the filter excludes" in found
    assert "4.4 metadata: equality on top-level keys, type and depth included" in found


def test_a_rule_whose_check_breaks_has_failed(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr("ragd.compress", broken)
    found = failures(connection, "1.2.6")
    assert len(found) == 2
    assert {item[0].got for item in found.values()} == {"ZeroDivisionError: no"}


def test_a_database_error_fails_its_rule_alone(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragd.conformance.store_rules.INSERT_AGAIN", "SELECT 1/0")
    monkeypatch.setattr("ragd.conformance.store_rules.COLUMNS", "SELECT 1/0")
    found = failures(connection, "1.1.4", "3")
    assert set(found) == {"1.1.4 (collection_id, doc_id, chunk_index) is unique", "3 the tables carry the contract"}
    assert "division by zero" in found["3 the tables carry the contract"][0].got


@pytest.fixture
def own_golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the golden files that a test may damage."""
    copied = tmp_path / "golden"
    shutil.copytree(golden.FOLDER, copied)
    monkeypatch.setattr(golden, "FOLDER", copied)
    return copied / ragd.SPEC_VERSION


def test_an_edited_golden_list_is_found(connection: Any, own_golden: Path) -> None:
    path = own_golden / "vector.json"
    content = json.loads(path.read_text())
    results = content["answers"][7]["results"]
    results[0], results[1] = results[1], results[0]
    path.write_text(json.dumps(content))
    found = failures(connection, "5.1", "5.3")
    lists = found["5.1 golden vector lists: ids exactly, scores in order and within 1e-5"]
    assert len(lists) == 1
    assert lists[0].case == f"{content['answers'][7]['language']}: {content['answers'][7]['query']!r}"
    assert lists[0].got == f"rank 1 is {results[1][0]}, not {results[0][0]}"
    assert "5.3 golden results are pinned per version: none has changed without a new version" in found


def test_golden_files_that_agree_but_changed_are_found(connection: Any, own_golden: Path) -> None:
    path = own_golden / "vector.json"
    path.write_text(path.read_text() + "\n")
    assert list(failures(connection, "5.3")) == [
        "5.3 golden results are pinned per version: none has changed without a new version"
    ]


def test_a_new_version_needs_its_own_golden_results(
    connection: Any, own_golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(golden, "SPEC_VERSION", "0.3.0")
    monkeypatch.setattr("ragd.conformance.golden.SPEC_VERSION", "0.3.0")
    found = failures(connection, "5.3")
    (failure,) = found["5.3 golden results are pinned per version: none has changed without a new version"]
    assert failure.case == "0.3.0 is pinned"
    with scratch(connection) as bench:
        bench.load_golden()
        digest = golden.write(bench)
        assert golden.digest_of(golden.folder_of("0.3.0")) == digest
        with pytest.raises(InvalidInput, match="stay as they are"):
            golden.write(bench)
    monkeypatch.setattr(golden, "DIGESTS", golden.DIGESTS | {"0.3.0": digest})
    assert failures(connection, "5.3") == {}


def test_no_golden_list_hangs_on_the_last_digit_of_a_sum(connection: Any) -> None:
    """Neighbours in a lexical list differ clearly, or are equal by construction: one common word, or the same ones.

    Two words in another order may add up to another last digit on another processor.
    """

    def count_words(text: str) -> Counter[str]:
        return Counter(re.findall(r"[^\s!-/:-@\[-`{-~]+", text.lower()))

    def explain(candidate: Candidate, query: Counter[str]) -> tuple[dict[str, int], int]:
        words = count_words(f"{candidate.context} {candidate.content}")
        words.update({bare: count for word, count in words.items() if (bare := remove_accents(word)) != word})
        return {word: words[word] for word in query if word in words}, words.total()

    with scratch(connection) as bench:
        store = bench.load_golden()
        for plan in (corpus.PLANS["lexical"], corpus.PLANS["filtered"]):
            wide = replace(plan, mode="lexical", k=plan.pool + 1)
            for query in corpus.queries():
                found = ragd.retrieve(query.text, wide, store)
                for one, other in pairwise(found):
                    if one.score - other.score > 2e-5 * one.score:
                        continue
                    held, also = (explain(item, count_words(query.text)) for item in (one, other))
                    is_single = len(held[0]) == len(also[0]) == 1
                    # one word weighs the same to the last digit where it is as often in as many words
                    assert held == also or (is_single and one.score == other.score), (query.text, one.key, other.key)


def test_the_corpus_reads_the_same_under_every_locale() -> None:
    """What is not ASCII is a letter or a mark that has no capital form: no locale splits or folds it differently."""
    import unicodedata

    texts = [document.text for document in corpus.documents()] + [query.text for query in corpus.queries()]
    titles = [document.title for document in corpus.documents()]
    foreign = {letter for text in texts + titles for letter in text if not letter.isascii()}
    assert {unicodedata.category(letter) for letter in foreign} <= {"Ll", "Lo", "Lm", "Mn", "Mc"}
    assert {letter for letter in foreign if letter != letter.lower()} == set()
    assert {query.language for query in corpus.queries()} == set(corpus.LANGUAGES)


def test_vectors_have_length_one_without_rounding() -> None:
    embedder = SimHashEmbedder()
    one, other = embedder.embed(["the kettle boils", "the kettle boils water"])
    assert len(one) == DIMS
    assert sum(entry * entry for entry in one) == 1.0
    assert set(one) <= {1 / 16, -1 / 16}
    near = sum(a * b for a, b in zip(one, other, strict=True))
    far = sum(a * b for a, b in zip(one, embedder.embed_query("жёлтый лист"), strict=True))
    assert near > 0.5 > far
    assert embedder.embed_query("THE Kettle") == embedder.embed_query("the kettle")
    assert len(embedder.embed_query("")) == DIMS


@pytest.mark.fault("F4")
def test_results_without_their_text_are_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = retrieval.fill

    def emptied(candidates: Sequence[Candidate], store: Any, **values: Any) -> list[Candidate]:
        return [replace(item, content="") for item in real(candidates, store, **values)]

    monkeypatch.setattr(retrieval, "fill", emptied)
    found = failures(connection, "6")
    assert list(found) == [HOLDS_ROWS, MOVES_UP]
    assert not [each.case for each in found[HOLDS_ROWS] if each.case.startswith(("vector:", "lexical:"))]


@pytest.mark.fault("F1", "F4")
def test_results_whose_rows_are_gone_are_found(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As search was once: what fill() did not find stood behind what it found."""
    real = retrieval.fill

    def kept(candidates: Sequence[Candidate], store: Any, **values: Any) -> list[Candidate]:
        rows = real(candidates, store, **values)
        known = {item.key for item in rows}
        return rows + [item for item in candidates if item.key not in known]

    monkeypatch.setattr(retrieval, "fill", kept)
    assert list(failures(connection, "6")) == [MOVES_UP]


HOLDS_ROWS = "6 every result holds what its row holds, and its ranks are its places"
MOVES_UP = "6 a chunk that goes while a search runs is no result, and the next moves up"


Door = Callable[[str, RetrievePlan], list[dict[str, Any]]]


def test_a_door_that_drifts_is_found(connection: Any) -> None:
    with scratch(connection) as bench:
        store = bench.load_golden()
        answers = {
            (query.text, plan.hash): [result_of(item) for item in ragd.retrieve(query.text, plan, store)]
            for plan in corpus.PLANS.values()
            for query in corpus.queries()
        }

    def rounding(query: str, plan: RetrievePlan) -> list[dict[str, Any]]:
        return [item | {"score": round(item["score"], 4)} for item in answers[query, plan.hash]]

    doors: dict[str, Door] = {"true": lambda query, plan: answers[query, plan.hash], "rounding": rounding}
    found = failures(connection, "6", channels=doors)
    assert list(found) == ["6 rounding answers as the library does, byte for byte"]


@pytest.fixture
def database(db: None) -> str:
    from urllib.parse import quote

    from django.db import connection as django_connection

    values = django_connection.get_connection_params()
    login = f"{quote(str(values['user']))}:{quote(str(values.get('password') or ''))}"
    return f"postgresql://{login}@{values['host']}:{values['port']}/{values['dbname']}"


def test_the_command_prints_a_table(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--database", database, "--only", "4.3"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^4\.3 +score = sum of 1 / \(rrf_k \+ rank\), .* \d+  pass$", printed, re.MULTILINE)
    assert "all pass" in printed.splitlines()[-1]


def test_the_command_fails_with_the_case(
    database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragd.fuse", lambda *_, **__: [])
    assert command.main(["--database", database, "--only", "4.3"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL" in printed
    assert "          case      order\n          expected  ['a#0', 'c#0'" in printed
    assert command.main(["--database", database, "--only", "4.3", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["passed"] is False
    assert {"section", "title", "cases", "passed", "failures", "took_ms"} == set(answer["rules"][0])


def test_the_command_says_when_it_cannot_try(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--database", "postgresql://nobody@127.0.0.1:1/none"]) == 2
    assert "connection" in capsys.readouterr().err
    assert command.main(["--database", database, "--write"]) == 2
    assert "needs a new SPEC_VERSION" in capsys.readouterr().err


def test_without_an_address_the_embedded_database_is_asked_for(
    database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "EMBEDDED", ("echo", database))
    assert command.main(["--only", "5.3"]) == 0
    monkeypatch.setattr(command, "EMBEDDED", ("sh", "-c", "echo no wheel here >&2; exit 1"))
    assert command.main([]) == 2
    assert "(no wheel here); name a database with --database" in capsys.readouterr().err
