"""Golden questions as CSV and as JSON Lines: written and read so that what comes back is what went out. Pure.

In CSV lists are joined by "; " (as a JSON array where an id holds a semicolon or begins with a bracket), thresholds
read "recall@10=1; hit@5=0.5". A cell that a spreadsheet could take for a formula gets an apostrophe in front, and loses
it when it is read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from evaluation_app.golden.questions import FIELDS, Golden
from ragd.errors import InvalidInput

Format = Literal["csv", "jsonl"]
MEDIA_TYPES: Mapping[Format, str] = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
SUGGESTED = "suggested"
COLUMNS = (*FIELDS, SUGGESTED)
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


def read_rows(text: str, format: Format) -> list[Row]:
    """What the lines state; a line that cannot be read has its error. Raises InvalidInput for a file that is none."""
    rows = _read_jsonl(text) if format == "jsonl" else _read_csv(text)
    result: list[Row] = []
    for row in rows:
        result.append(row)
        if len(result) > ROWS_MAX:
            raise InvalidInput(f"the file must hold at most {ROWS_MAX:,} questions; send it in parts", field="file")
    if not result:
        raise InvalidInput("the file holds no question", field="file")
    return result


def _read_jsonl(text: str) -> Iterator[Row]:
    for number, line in enumerate(text.lstrip(BYTE_ORDER_MARK).split("\n"), 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            yield Row(number, {}, f"the line is no JSON: {error}")
            continue
        yield _object_row(number, values)


def _object_row(number: int, values: Any) -> Row:
    if not isinstance(values, dict):
        return Row(number, {}, f"the line must be a JSON object, not {type(values).__name__}")
    if unknown := sorted(set(values) - set(COLUMNS)):
        return Row(number, {}, f"there is no field {unknown[0]!r}; known are {', '.join(COLUMNS)}")
    if not isinstance(values.get(SUGGESTED, False), (bool, type(None))):
        return Row(number, {}, f"suggested must be true or false, not {values[SUGGESTED]!r}")
    return Row(number, values)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _read_csv(text: str) -> Iterator[Row]:
    text = text.lstrip(BYTE_ORDER_MARK)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        names = [_column(name) for name in next(reader, [])]
    except csv.Error as error:
        raise InvalidInput(f"the first line cannot be read as CSV: {error}", field="file") from None
    _check_columns(names)
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(number, {}, f"the line cannot be read as CSV: {error}")
            return
        if any(cell.strip() for cell in cells):
            yield _cells_row(number, names, cells)


def _delimiter(text: str) -> str:
    """The one that the first line holds most of."""
    first = text.partition("\n")[0]
    return max(DELIMITERS, key=lambda mark: (first.count(mark), -DELIMITERS.index(mark)))


def _column(name: str) -> str:
    return unguard(name.strip()).strip().lower().replace(" ", "_")


def _check_columns(names: Sequence[str]) -> None:
    known = ", ".join(COLUMNS)
    if unknown := next((name for name in names if name not in COLUMNS), None):
        raise InvalidInput(f"the file has a column {unknown!r}; known are {known}", field="file")
    if "question" not in names:
        raise InvalidInput(
            f"the first line must name the columns, question among them; known are {known}", field="file"
        )
    if len(set(names)) < len(names):
        raise InvalidInput("the first line names a column twice", field="file")


def _cells_row(number: int, names: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) > len(names):
        return Row(
            number, {}, f"the line has {len(cells)} cells and the first line {len(names)}; quote what holds a comma"
        )
    texts = dict(zip(names, (unguard(cell) for cell in cells), strict=False))
    try:
        return Row(number, {name: _value(name, text) for name, text in texts.items()})
    except InvalidInput as error:
        return Row(number, {}, error.message)


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
    if name == SUGGESTED:
        return _read_truth(text)
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


def _read_truth(text: str) -> bool:
    message = text.strip().lower()
    if message not in TRUE + FALSE:
        raise InvalidInput(f"suggested must be true or false, not {text.strip()!r}")
    return message in TRUE


def _cell(name: str, value: Any) -> str:
    if name in LISTS:
        plain = not any(";" in item or "\n" in item for item in value) and not (value and value[0].startswith("["))
        return "; ".join(value) if plain else json.dumps(value, ensure_ascii=False)
    if name == "thresholds":
        return write_thresholds(value)
    return repr(value) if name == "weight" else str(value)


def _record(cells: Sequence[str]) -> str:
    written = io.StringIO(newline="")
    csv.writer(written).writerow(cells)
    return written.getvalue()
