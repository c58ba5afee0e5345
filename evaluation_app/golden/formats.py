"""Golden questions as CSV and as JSON Lines, and the import: told before, then carried out whole or not at all.

In CSV lists are joined by "; " (as a JSON array where an id holds a semicolon or begins with a bracket), thresholds
read "recall@10=1; hit@5=0.5". A cell that a spreadsheet could take for a formula gets an apostrophe in front, and loses
it when it is read.

Which column of a file holds which field of a golden question: proposed by the names that other tools use. Pure.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from collections_app.access.context import system_access
from collections_app.audit import services
from collections_app.errors import ServiceError
from evaluation_app.golden.edits import changing, next_position, question_taken, replace_questions, write_goldens
from evaluation_app.golden.questions import FIELDS, Golden, clean_golden, read_status
from evaluation_app.models import GoldenQuestion, GoldenSet
from ragd.errors import InvalidInput

SUGGESTED = "suggested"
COLUMNS = (*FIELDS, SUGGESTED)
LEFT_OUT = ""
Mapped = Mapping[str, str]  # name of a column -> field, LEFT_OUT for one that is not read

# The names under which Ragas, DeepEval, LangSmith, Langfuse, Phoenix, promptfoo and hand-made sheets keep the same; of
# several columns for one field the earlier name here is proposed.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "question": ("input", "query", "user_input", "prompt", "questions", "user_query", "q"),
    "expected_answer": (
        "expected_output", "ground_truth", "ground_truths", "reference", "reference_answer", "reference_output",
        "gold_answer", "ideal", "expected", "answer", "target", "correct_answer", "output", "outputs",
    ),
    "expected_doc_ids": (
        "doc_ids", "doc_id", "expected_documents", "expected_sources", "relevant_docs", "relevant_doc_ids",
        "reference_ids", "reference_context_ids", "documents", "sources", "source", "document", "document_id",
    ),
    "expected_chunks": ("chunks", "chunk_ids", "expected_chunk_ids"),
    "category": ("type", "question_type", "evolution_type", "synthesizer_name", "topic"),
    "notes": ("note", "comment", "comments"),
    "weight": ("importance",),
}  # fmt: skip


def plain_name(name: str) -> str:
    """As names are compared: "Expected Output" is "expected_output"."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def propose_columns(names: Iterable[str]) -> dict[str, str]:
    """A field for each column, each field once: by its own name first, then by the first alias. LEFT_OUT for others."""
    by_name = {plain_name(name): name for name in reversed(list(names))}
    found = {by_name[column]: column for column in COLUMNS if column in by_name}
    for column, aliases in ALIASES.items():
        if column not in found.values() and (alias := next((each for each in aliases if each in by_name), None)):
            found[by_name[alias]] = column
    return {name: found.get(name, LEFT_OUT) for name in names}


def unmapped(names: Sequence[str]) -> list[str]:
    """The columns for which nothing is proposed."""
    return [name for name, field in propose_columns(names).items() if not field]


def check_columns(columns: Mapped, names: Sequence[str]) -> dict[str, str]:
    """The stated columns over what is proposed for the others. Raises InvalidInput (field columns) for a column that
    the file does not have, an unknown field, and a field that two columns have; and where no column is the question."""
    if missing := next((name for name in columns if name not in names), None):
        raise InvalidInput(f"the file has no column {missing!r}; it has {', '.join(names)}", field="columns")
    if unknown := next((field for field in columns.values() if field not in (*COLUMNS, LEFT_OUT)), None):
        raise InvalidInput(
            f"there is no field {unknown!r}; known are {', '.join(COLUMNS)}, and an empty one for a column that is not"
            " read",
            field="columns",
        )
    stated = set(columns.values())
    proposed = {name: field for name, field in propose_columns(names).items() if field not in stated}
    result = {name: columns.get(name, proposed.get(name, LEFT_OUT)) for name in names}
    fields = [field for field in result.values() if field]
    if twice := next((field for field in fields if fields.count(field) > 1), None):
        raise InvalidInput(f"two columns are mapped to {twice}; leave one out", field="columns")
    if "question" not in fields:
        raise InvalidInput(
            f"no column is mapped to question; the file has {', '.join(names)}. State which holds it", field="columns"
        )
    return result


def read_columns(text: str | None) -> dict[str, str] | None:
    """Of {"input": "question", "id": ""} as JSON text; None stays. Raises InvalidInput (field columns) for others."""
    if text is None:
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(field, str) for field in values.values()):
        raise InvalidInput(
            'columns must be a JSON object such as {"input": "question", "id": ""}, an empty field for a column that is'
            f" not read; not {text[:200]!r}",
            field="columns",
        )
    return values


Format = Literal["csv", "jsonl"]
MEDIA_TYPES: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
TRUTHS = (SUGGESTED, "by_construction")
LISTS = ("expected_doc_ids", "expected_chunks")
ROWS_MAX = 20_000
BYTES_MAX = 20_000_000
DELIMITERS = ",;\t"
BYTE_ORDER_MARK = "\ufeff"
FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
ESCAPED = re.compile("'+[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0", "")

csv.field_size_limit(1_000_000)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file. number: of its line, from 1. stated: fields by name, as plain values. error: "" for none."""

    number: int
    stated: Mapping[str, Any]
    error: str = ""


def write_jsonl(questions: Iterable[tuple[Golden, bool]]) -> Iterator[str]:
    """One line per question, all fields; "suggested" only where it is true."""
    for golden, suggested in questions:
        values = golden.as_dict() | ({SUGGESTED: True} if suggested else {})
        yield json.dumps(values, ensure_ascii=False) + "\n"


def write_csv(questions: Iterable[tuple[Golden, bool]], *, for_spreadsheet: bool = False) -> Iterator[str]:
    """A head and one record per question. for_spreadsheet: a byte order mark first, by which Excel knows UTF-8."""
    if for_spreadsheet:
        yield BYTE_ORDER_MARK
    yield _record(COLUMNS)
    for golden, suggested in questions:
        cells = {name: _cell(name, value) for name, value in golden.as_dict().items()}
        cells[SUGGESTED] = "true" if suggested else ""
        yield _record([guard(cells[name]) for name in COLUMNS])


def guard(text: str) -> str:
    """The text so that no spreadsheet runs it: an apostrophe in front of what looks like a formula."""
    return f"'{text}" if FORMULA.match(text) else text


def unguard(text: str) -> str:
    """The reverse of `guard`."""
    return text[1:] if ESCAPED.match(text) else text


def decode(content: bytes) -> str:
    """A file's text: UTF-8, or UTF-16 with its mark. Raises InvalidInput for another encoding or too many bytes."""
    if len(content) > BYTES_MAX:
        raise InvalidInput(f"the file must have at most {BYTES_MAX:,} bytes, not {len(content):,}", field="file")
    is_wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the file must be UTF-8; byte {error.start} is not. Save it as UTF-8 and send it again", field="file"
        ) from None


def guess_format(name: str, text: str) -> Format:
    """By the file's name, else by its first character."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("csv", "tsv", "txt"):
        return "csv"
    is_object = text.lstrip(BYTE_ORDER_MARK).lstrip().startswith("{")
    return "jsonl" if is_object or ending in ("jsonl", "ndjson", "json") else "csv"


@dataclass(frozen=True, slots=True)
class Line:
    """One line as it stands in the file. number: from 1. values: by the file's own names. error: "" for none."""

    number: int
    values: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file of which nothing is understood yet. names: its columns, or the keys of all its objects, as they come."""

    format: Format
    names: tuple[str, ...]
    lines: Sequence[Line]

    def example(self, name: str) -> str:
        """The first value of a column that is not empty, as a text."""
        values = (line.values.get(name) for line in self.lines)
        value = next((value for value in values if value not in (None, "", [], {})), "")
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_rows(text: str, format: Format, columns: Mapped | None = None) -> list[Row]:
    """What the lines state; a line that cannot be read has its error. Raises InvalidInput for a file that is none.

    columns: which column holds which field, over what is proposed by their names; None: as proposed, and then a column
    for which nothing is proposed is an error.
    """
    return map_rows(read_file(text, format), columns)


def read_file(text: str, format: Format) -> File:
    """Raises InvalidInput for a file without lines, or with too many, and for a head that is none."""
    text = text.lstrip(BYTE_ORDER_MARK)
    names: list[str] = [] if format == "jsonl" else _head_of(text)
    lines: list[Line] = []
    for line in _read_jsonl(text) if format == "jsonl" else _read_csv(text, names):
        lines.append(line)
        if len(lines) > ROWS_MAX:
            raise InvalidInput(f"the file must hold at most {ROWS_MAX:,} questions; send it in parts", field="file")
    if not lines and (format == "jsonl" or "question" in propose_columns(names).values()):
        raise InvalidInput("the file holds no question", field="file")
    if format == "jsonl":
        names = list(dict.fromkeys(name for line in lines for name in line.values))
    return File(format, tuple(names), lines)


def map_rows(file: File, columns: Mapped | None = None) -> list[Row]:
    """The file's lines as fields of golden questions. Raises InvalidInput; see `read_rows`."""
    if columns is None:
        _check_known(file)
    mapped = mapped_columns(file, columns)
    return [_row_of(file, line, mapped, is_stated=columns is not None) for line in file.lines]


def mapped_columns(file: File, columns: Mapped | None = None) -> dict[str, str]:
    """Each column of the file with its field: as stated, else as proposed. Raises InvalidInput; see `check_columns`."""
    return propose_columns(file.names) if columns is None else check_columns(columns, file.names)


def _check_known(file: File) -> None:
    """Without a word of the caller a column that nobody knows is no column to pass over. Of JSON each line says it."""
    known, unknown = ", ".join(COLUMNS), unmapped(file.names)
    if file.format == "jsonl":
        return
    if "question" not in propose_columns(file.names).values():
        raise InvalidInput(
            f"the first line must name the columns, question among them; known are {known}", field="file"
        )
    if unknown:
        raise InvalidInput(
            f"the file has a column {unknown[0]!r}; known are {known}. State with columns which field it holds, or"
            ' that it is not read: {"' + unknown[0] + '": ""}',
            field="file",
        )


def _row_of(file: File, line: Line, mapped: Mapped, *, is_stated: bool) -> Row:
    if line.error:
        return Row(line.number, {}, line.error)
    unknown = sorted(name for name in line.values if not mapped[name])
    if unknown and not is_stated:
        return Row(line.number, {}, f"there is no field {unknown[0]!r}; known are {', '.join(COLUMNS)}")
    stated: dict[str, Any] = {}
    try:
        for name, value in line.values.items():
            if field := mapped[name]:
                is_own = name == field
                stated[field] = _value(field, value) if file.format == "csv" else _json_value(field, value, is_own)
    except InvalidInput as error:
        return Row(line.number, {}, error.message)
    return Row(line.number, stated)


def _json_value(field: str, value: Any, is_own: bool) -> Any:
    """As it stands. Under another tool's name a text may be a list of one, and a list of ids a text."""
    if field == SUGGESTED and not isinstance(value, (bool, type(None))):
        raise InvalidInput(f"suggested must be true or false, not {value!r}")
    if is_own:
        return value
    if field in LISTS and isinstance(value, str):
        return _read_list(field, value)
    if field not in LISTS and isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _read_jsonl(text: str) -> Iterator[Line]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            yield Line(number, {}, f"the line is no JSON: {error}")
            continue
        if isinstance(values, dict):
            yield Line(number, values)
        else:
            yield Line(number, {}, f"the line must be a JSON object, not {type(values).__name__}")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _head_of(text: str) -> list[str]:
    """The names in the first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        names = [unguard(name.strip()).strip() for name in next(reader, [])]
    except csv.Error as error:
        raise InvalidInput(f"the first line cannot be read as CSV: {error}", field="file") from None
    plain = [plain_name(name) for name in names]
    if len(set(plain)) < len(plain):
        raise InvalidInput("the first line names a column twice", field="file")
    return names


def _read_csv(text: str, names: Sequence[str]) -> Iterator[Line]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    next(reader, None)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(number, {}, f"the line cannot be read as CSV: {error}")
            return
        if len(cells) > len(names):
            message = f"the line has {len(cells)} cells and the first line {len(names)}; quote what holds a comma"
            yield Line(number, {}, message)
        elif any(cell.strip() for cell in cells):
            yield Line(number, dict(zip(names, (unguard(cell) for cell in cells), strict=False)))


def _delimiter(text: str) -> str:
    """The one that the first line holds most of."""
    first = text.partition("\n")[0]
    return max(DELIMITERS, key=lambda mark: (first.count(mark), -DELIMITERS.index(mark)))


def _value(name: str, text: str) -> Any:
    """What a cell states. An empty one states the default, None."""
    if name in LISTS:
        return _read_list(name, text)
    if not text.strip():
        return None
    if name == "weight":
        return _number(name, text)
    if name == "thresholds":
        return read_thresholds(text)
    if name in TRUTHS:
        message = text.strip().lower()
        if message not in TRUE + FALSE:
            raise InvalidInput(f"{name} must be true or false, not {text.strip()!r}")
        return message in TRUE
    return text


def _read_list(name: str, text: str) -> list[str]:
    cleaned = text.strip()
    if not cleaned.startswith("["):
        return [part.strip() for part in re.split("[;\n]", cleaned) if part.strip()]
    try:
        values = json.loads(cleaned)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, list):
        raise InvalidInput(f'{name} begins with [ and is no JSON array; write it as ["id", "id"]')
    return values


def read_thresholds(text: str) -> dict[str, float]:
    """ "recall@10=1; hit@5=0.5", or a JSON object, as measure -> least value. Raises InvalidInput for neither."""
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"thresholds begins with {{ and is no JSON object: {error}") from None
        return dict(values)
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    return {name.strip(): _number("thresholds", least) for name, _, least in parts}


def write_thresholds(thresholds: Mapping[str, float]) -> str:
    """The reverse of `read_thresholds`."""
    return "; ".join(f"{measure}={least!r}" for measure, least in thresholds.items())


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number such as 0.5, not {text.strip()!r}") from None


def _cell(name: str, value: Any) -> str:
    if name in LISTS:
        plain = not any(";" in item or "\n" in item for item in value) and not (value and value[0].startswith("["))
        return "; ".join(value) if plain else json.dumps(value, ensure_ascii=False)
    if name == "thresholds":
        return write_thresholds(value)
    if name in TRUTHS:
        return "true" if value else ""
    return repr(value) if name == "weight" else str(value)


def _record(cells: Sequence[str]) -> str:
    written = io.StringIO(newline="")
    csv.writer(written).writerow(cells)
    return written.getvalue()


Mode = Literal["merge", "replace"]
Status = Literal["added", "changed", "unchanged", "error"]
ERRORS_TOLD = 3


@dataclass(frozen=True, slots=True)
class Planned:
    """One line and what becomes of it. before: the question as the set has it. fields: names of those that differ.
    unknown: documents and chunks that it would expect and that the collection does not have."""

    number: int
    status: Status
    golden: Golden | None = None
    before: Golden | None = None
    suggested: bool = False
    fields: tuple[str, ...] = ()
    error: str = ""
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do. rows: in the file's order. removed: questions that go, in replace mode alone.

    stand: the digest of the questions that it was planned over (`GoldenSet.digest`).
    """

    mode: Mode
    rows: Sequence[Planned]
    removed: Sequence[Golden] = field(default_factory=tuple)
    stand: str = ""

    @property
    def counts(self) -> dict[str, int]:
        result = dict.fromkeys(("added", "changed", "unchanged", "error"), 0)
        for row in self.rows:
            result[row.status] += 1
        return result | {"removed": len(self.removed)}

    @property
    def errors(self) -> list[Planned]:
        return [row for row in self.rows if row.status == "error"]

    @property
    def unknown_total(self) -> int:
        """How many lines expect what the collection does not have."""
        return sum(bool(row.unknown) for row in self.rows)

    @property
    def changes_anything(self) -> bool:
        counts = self.counts
        return bool(counts["added"] or counts["changed"] or counts["removed"])


def plan_import(golden_set: GoldenSet, rows: Sequence[Row], mode: Mode = "merge") -> ImportPlan:
    """Writes nothing. A line is the question of the same words; what it does not state of one that is there stays.

    mode "merge": the other questions stay. "replace": the set's accepted questions become those of the file, in its
    order, beside those that whoever asks may not see; a line with the words of one of these is an error, and so is the
    second line of a question that stands twice in the file.
    """
    stored = {row.question: row for row in golden_set.questions.order_by("position", "id")}
    with system_access():
        hidden = set(golden_set.questions.values_list("question", flat=True)) - stored.keys()
    planned = _with_unknown(golden_set, list(_plan_rows(rows, stored, hidden)))
    named = {row.golden.question for row in planned if row.golden is not None}
    removed: tuple[Golden, ...] = ()
    if mode == "replace":
        removed = tuple(Golden.of(row) for text, row in stored.items() if text not in named and not row.suggested)
    return ImportPlan(mode, planned, removed, golden_set.digest)


def carry_out(
    golden_set: GoldenSet,
    rows: Sequence[Row],
    mode: Mode = "merge",
    *,
    expected: str | None = None,
    actor: services.Actor = None,
) -> ImportPlan:
    """Import all lines, or none: a line with an error refuses the whole with 422.

    expected: `ImportPlan.stand` of the plan that was agreed to; ServiceError 409 when the set has other questions now.
    """
    with changing(golden_set, actor) as change:
        golden_set = change.golden_set
        if expected is not None and expected != golden_set.digest:
            raise ServiceError(
                "the set was changed since this import was looked at; look at it again", type="changed_meanwhile"
            )
        plan = plan_import(golden_set, rows, mode)
        if plan.errors:
            raise InvalidInput(_tell_errors(plan), field="file")
        before = _order_of(golden_set)
        if plan.changes_anything or mode == "replace":
            _write(golden_set, plan)
        counts = plan.counts
        did = ", ".join(f"{counts[name]} {name}" for name in ("added", "changed", "removed") if counts[name])
        if did or _order_of(golden_set) != before:
            change.summary = f"imported {len(rows)} lines: {did or 'another order'}"
    return plan


def tell_import(golden_set: GoldenSet, plan: ImportPlan, columns: Mapped, *, dry_run: bool) -> dict[str, Any]:
    """What an import did or would do, as API and command line answer it; lines that change nothing are left out."""
    return {
        "dry_run": dry_run,
        "counts": plan.counts,
        "columns": columns,
        "lines": [row for row in plan.rows if row.status != "unchanged"],
        "removed": [golden.question for golden in plan.removed],
        "version": golden_set.version,
    }


def _with_unknown(golden_set: GoldenSet, planned: Sequence[Planned]) -> list[Planned]:
    """In three queries."""
    written = [row.golden for row in planned if row.golden is not None and row.status != "unchanged"]
    status = read_status(golden_set.collection_name, written)
    return [
        row
        if row.golden is None or row.status == "unchanged"
        else replace(row, unknown=tuple(item.key for item in status.of(row.golden) if item.state == "gone"))
        for row in planned
    ]


def _plan_rows(rows: Sequence[Row], stored: Mapping[str, GoldenQuestion], hidden: Set[str]) -> Iterator[Planned]:
    seen: dict[str, int] = {}
    for row in rows:
        if row.error:
            yield Planned(row.number, "error", error=row.error)
            continue
        try:
            planned = _plan_row(row, stored, hidden)
        except InvalidInput as error:
            yield Planned(row.number, "error", error=error.message)
            continue
        assert planned.golden is not None
        first = seen.setdefault(planned.golden.question, row.number)
        if first != row.number:
            yield Planned(row.number, "error", error=f"line {first} has the same question")
        else:
            yield planned


def _plan_row(row: Row, stored: Mapping[str, GoldenQuestion], hidden: Set[str]) -> Planned:
    explicit: dict[str, Any] = {name: value for name, value in row.stated.items() if name != SUGGESTED}
    message = row.stated.get(SUGGESTED)
    new = clean_golden(explicit)
    if new.question in hidden:
        raise InvalidInput(question_taken(new.question).message)
    known = stored.get(new.question)
    if known is None:
        return Planned(row.number, "added", new, suggested=bool(message))
    before = Golden.of(known)
    golden = clean_golden(explicit, before)
    suggested = known.suggested if message is None else bool(message)
    fields = [name for name, value in golden.as_dict().items() if value != before.as_dict()[name]]
    if suggested != known.suggested:
        fields.append(SUGGESTED)
    status: Status = "changed" if fields else "unchanged"
    return Planned(row.number, status, golden, before, suggested, tuple(fields))


def _write(golden_set: GoldenSet, plan: ImportPlan) -> None:
    if plan.mode == "replace":
        replace_questions(golden_set, [row.golden for row in plan.rows if row.golden and not row.suggested])
    stored = {row.question: row for row in golden_set.questions.all()}
    position = next_position(golden_set)
    written = []
    for row in plan.rows:
        if row.golden is None or row.status == "unchanged":
            continue
        question = stored.get(row.golden.question) or GoldenQuestion(golden_set=golden_set)
        if question.pk is None or (question.suggested and not row.suggested):
            question.position, position = position, position + 1
        question.suggested = row.suggested
        written.append((question, row.golden))
    write_goldens(golden_set, written)


def _order_of(golden_set: GoldenSet) -> list[int]:
    rows = golden_set.questions.filter(suggested=False).order_by("position", "id")
    return list(rows.values_list("pk", flat=True))


def _tell_errors(plan: ImportPlan) -> str:
    summary = "; ".join(f"line {row.number}: {row.error}" for row in plan.errors[:ERRORS_TOLD])
    more = len(plan.errors) - ERRORS_TOLD
    rest = f"; and {more} more" if more > 0 else ""
    return f"nothing was imported, because {len(plan.errors)} of {len(plan.rows)} lines are wrong: {summary}{rest}"
